"""Weights of sources from rules: by tokens, temperature, UniMax and difficulty.

A weight that is no round decimal is rounded to nine digits, so that the last bits of a machine's arithmetic
do not decide which samples a step has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stoker.data.repetition import epochs_allowed
from stoker.errors import BadInput
from stoker.recipe import Recipe

Table = Sequence[float | int]
"""One weight a source; only their ratios matter."""


def table_of(recipe: Recipe, tokens: Mapping[str, int], weights: str | Mapping[str, float]) -> Table:
    """The weights that `weights`, a rule or a table, gives to sources with so many training tokens.

    Raises `BadInput` when no source is left.
    """
    if not isinstance(weights, str):
        return [weights.get(name, 0.0) for name in tokens]
    mixing, training = recipe.data.mixture, recipe.training
    given = given_weights(recipe, tokens)
    open_to = {name: own for name, own in tokens.items() if given[name] and own}
    if not open_to:
        raise BadInput("data.mixture: no source with training tokens has a weight; give one a positive weight")
    match weights:
        case "given":
            found = given
        case "tokens":
            found = dict(open_to)
        case "temperature":
            found = temperature(open_to, mixing.alpha)
        case "unimax":
            budget = training.samples_before(training.steps + 1) * training.sequence_length
            found = unimax(open_to, budget, {name: epochs_allowed(mixing.cap_of(name)) for name in open_to})
        case _:
            base = {name: given[name] for name in open_to}
            found = difficulty(base, mixing.losses, mixing.reference_losses, mixing.exponent)
    return [found.get(name, 0.0) for name in tokens]


def given_weights(recipe: Recipe, tokens: Mapping[str, int]) -> dict[str, float]:
    """The sources' own weights; where they have none, their training tokens. Of others than the recipe's: 0."""
    given = {source.name: source.weight for source in recipe.data.sources}
    found: dict[str, float] = {}
    for name, own in tokens.items():
        weight = given.get(name, 0.0)
        found[name] = own if weight is None else weight
    return found


def temperature(tokens: Mapping[str, int], alpha: float) -> dict[str, float]:
    """Weights in proportion to tokens^`alpha` (Lample & Conneau 2019, section 3.1; `alpha` is one over the
    temperature)."""
    most = max(tokens.values())
    return {name: _round((own / most) ** alpha) for name, own in tokens.items()}


def unimax(tokens: Mapping[str, int], budget: int, most_epochs: Mapping[str, float]) -> dict[str, float]:
    """Weights that are as even as can be while no source is passed over more than its `most_epochs` times.

    From the smallest source to the largest, each is given an even part of what is left of the `budget` in tokens,
    or as much as its epochs allow (Chung et al. 2023, algorithm 1). Where all together allow less than the budget,
    the weights are in proportion to what they allow.
    """
    left, found = float(budget), {}
    allowed = {name: tokens[name] * most_epochs[name] for name in tokens}
    order = sorted(tokens, key=lambda name: (allowed[name], name))
    for position, name in enumerate(order):
        found[name] = min(left / (len(order) - position), allowed[name])
        left -= found[name]
    total = sum(found.values())
    return {name: _round(amount / total) for name, amount in found.items()}


def difficulty(
    base: Mapping[str, float], losses: Mapping[str, float], reference: Mapping[str, float], exponent: float
) -> dict[str, float]:
    """`base` weights times exp(`exponent` × loss), or × how far the loss lies above a `reference`, at least 0.

    One step of exponentiated gradient ascent on the sources' losses, as group DRO takes (Sagawa et al. 2020,
    algorithm 1) and, with a reference, DoReMi (Xie et al. 2023, algorithm 1). Losses in nats a token.
    """
    excess = {name: max(0.0, losses[name] - reference[name]) if reference else losses[name] for name in base}
    most = max(exponent * own for own in excess.values())
    scaled = {name: weight * math.exp(exponent * excess[name] - most) for name, weight in base.items()}
    total = sum(scaled.values())
    return {name: _round(amount / total) for name, amount in scaled.items()}


def _round(weight: float) -> float:
    return float(f"{weight:.9g}")
