"""What a recipe's mixture comes to on its corpus: tokens, epochs and the price of repeats, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from stoker.data.corpus import Corpus
from stoker.data.feeding.feed import train_tokens
from stoker.data.feeding.staged_mixture import StagedMixture
from stoker.data.feeding.stages import Limits, Segment, segments_of
from stoker.data.feeding.weights import given_weights, temperature, unimax
from stoker.data.repetition import ALMOST_FREE_EPOCHS, REPEATS_DECAY, effective_tokens, epochs_allowed
from stoker.plural import counted
from stoker.recipe import Recipe


@dataclass(frozen=True)
class SourceAccount:
    """One source, in one stage or in the whole run."""

    source: str
    tokens: int
    """Training tokens that may be drawn: of a stage that chooses documents, those of these documents."""
    share: float
    """Of the sequences."""
    last_share: float
    """At the end of the stage, where it changes linearly; else the same."""
    drawn: int
    """Tokens drawn: sequences times their length."""
    epochs: float
    """Times that the tokens are passed over: in a stage, up to its end from the beginning of the run."""
    effective: float
    """Tokens of new text that what is drawn is worth; in a stage, what it adds to that."""

    @property
    def price(self) -> float:
        """Share of the tokens drawn that repeating costs; 0 while all is new."""
        return max(0.0, 1 - self.effective / self.drawn) if self.drawn else 0.0

    def as_json(self) -> dict[str, Any]:
        """With the price."""
        return asdict(self) | {"price": self.price}


@dataclass(frozen=True)
class StageAccount:
    """The steps of one stage."""

    stage: int
    first_step: int
    last_step: int
    linear: bool
    limits: Mapping[str, Limits]
    """Of the sources whose documents are chosen by length."""
    sources: tuple[SourceAccount, ...]


@dataclass(frozen=True)
class MixtureAccount:
    """A whole run."""

    steps: int
    tokens: int
    """Inputs in all steps together."""
    stages: tuple[StageAccount, ...]
    sources: tuple[SourceAccount, ...]
    rules: Mapping[str, Mapping[str, float]]
    """Shares that the rules would give, by rule and source."""
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "repeats_decay": REPEATS_DECAY,
            "stages": [
                {
                    **{key: getattr(stage, key) for key in ("stage", "first_step", "last_step", "linear")},
                    "documents": {name: asdict(limits) for name, limits in stage.limits.items()},
                    "sources": [one.as_json() for one in stage.sources],
                }
                for stage in self.stages
            ],
            "sources": [one.as_json() for one in self.sources],
            "rules": {rule: dict(shares) for rule, shares in self.rules.items()},
            "warnings": list(self.warnings),
        }


def account(corpus: Corpus, recipe: Recipe) -> MixtureAccount:
    """Work out what a run of `recipe` draws from `corpus`; reads no tokens.

    Epochs and prices are those of whole sources: a stage that chooses documents by length passes over fewer of them
    more often. Raises `BadInput` as a run would.
    """
    tokens = train_tokens(corpus, recipe)
    segments = segments_of(recipe, tokens)
    mixture = StagedMixture(segments)
    training, L = recipe.training, recipe.training.sequence_length
    samples = training.samples_before(training.steps + 1)
    stages: list[StageAccount] = []
    parts = [list(own) for _, own in groupby(segments, key=lambda one: one.stage)]
    for own, following in pairwise([*parts, []]):
        begin = own[0].first_sample
        end = min(following[0].first_sample, samples) if following else samples
        if begin >= end:
            continue
        before, after = mixture.count_before(begin), mixture.count_before(end)
        last_step = min(following[0].first_step - 1, training.steps) if following else training.steps
        stages.append(_stage(corpus, own, tokens, before * L, after * L, last_step))
    drawn = mixture.count_before(samples) * L
    total = max(int(drawn.sum()), 1)
    sources = tuple(
        SourceAccount(name, own, taken / total, taken / total, taken, taken / own if own else 0.0,
                      effective_tokens(own, taken) if taken else 0.0)
        for (name, own), taken in zip(tokens.items(), drawn.tolist(), strict=True)
    )  # fmt: skip
    return MixtureAccount(
        training.steps,
        total,
        tuple(stages),
        sources,
        _rules(recipe, tokens, total),
        _warnings(recipe, sources, stages),
    )


def _stage(
    corpus: Corpus,
    parts: list[Segment],
    tokens: Mapping[str, int],
    before: np.ndarray[Any, np.dtype[np.int64]],
    after: np.ndarray[Any, np.dtype[np.int64]],
    last_step: int,
) -> StageAccount:
    drawn = after - before
    limits = dict(zip(tokens, parts[0].limits, strict=True))
    found = []
    for index, (name, own) in enumerate(tokens.items()):
        taken, until = int(drawn[index]), int(after[index])
        worth = effective_tokens(own, until) - effective_tokens(own, int(before[index])) if taken else 0.0
        found.append(
            SourceAccount(
                source=name,
                tokens=_tokens_within(corpus, name, limits[name]),
                share=parts[0].shares[index],
                last_share=parts[-1].shares[index],
                drawn=taken,
                epochs=until / own if own else 0.0,
                effective=worth,
            )
        )
    chosen = {name: limit for name, limit in limits.items() if limit != Limits()}
    first = parts[0]
    return StageAccount(first.stage, first.first_step, last_step, len(parts) > 1, chosen, tuple(found))


def _tokens_within(corpus: Corpus, source: str, limits: Limits) -> int:
    store = corpus.store(source, "train")
    if limits == Limits():
        return store.token_count
    lengths = store.document_lengths
    return int(lengths[limits.of(lengths)].sum())


def _rules(recipe: Recipe, tokens: Mapping[str, int], budget: int) -> dict[str, dict[str, float]]:
    """Shares by rule, for comparison: of the sources that have a weight."""
    given = given_weights(recipe, tokens)
    open_to = {name: own for name, own in tokens.items() if given[name] and own}
    if not open_to:
        return {}
    mixing = recipe.data.mixture
    caps = {name: epochs_allowed(mixing.cap_of(name) or ALMOST_FREE_EPOCHS) for name in open_to}
    found: dict[str, dict[str, float]] = {
        "given": given,
        "tokens": {name: float(own) for name, own in open_to.items()},
        f"temperature, alpha {mixing.alpha:g}": temperature(open_to, mixing.alpha),
        f"unimax, {_epochs(caps)} epochs": unimax(open_to, budget, caps),
    }
    return {
        rule: {name: weights.get(name, 0.0) / sum(weights.values()) for name in tokens}
        for rule, weights in found.items()
    }


def _epochs(caps: Mapping[str, float]) -> str:
    known = sorted(set(caps.values()))
    return f"{known[0]:g}" if len(known) == 1 else f"{known[0]:g} to {known[-1]:g}"


def _warnings(recipe: Recipe, sources: tuple[SourceAccount, ...], stages: list[StageAccount]) -> tuple[str, ...]:
    found = []
    for one in sources:
        if one.epochs > 1 + REPEATS_DECAY:
            found.append(
                f"{one.source} is passed over {one.epochs:.1f} times: beyond {1 + REPEATS_DECAY:.1f} epochs the "
                "repeats are worth less than 1 - 1/e of new text, and further ones hardly anything"
            )
        elif one.epochs > ALMOST_FREE_EPOCHS:
            found.append(
                f"{one.source} is passed over {one.epochs:.1f} times; up to {ALMOST_FREE_EPOCHS:g} epochs repeats "
                "are nearly as good as new text"
            )
        if one.drawn == 0 and one.tokens:
            found.append(f"{one.source} is never drawn")
    for stage in stages:
        for name, limits in stage.limits.items():
            own = next(one for one in stage.sources if one.source == name)
            if own.drawn > own.tokens:
                found.append(
                    f"stage {stage.stage} draws {own.drawn / own.tokens:.1f} times the tokens of the documents of "
                    f"{limits} in {name}"
                )
    reached = {stage.stage for stage in stages}
    for number in range(1, len(recipe.data.mixture.stages) + 1):
        if number not in reached and not _goes_on(recipe, number):
            found.append(f"stage {number} has no step in a run of {counted(recipe.training.steps, 'steps')}")
    return tuple(found)


def _goes_on(recipe: Recipe, number: int) -> bool:
    """Whether a stage has steps in the run: one that is like the one before is not told apart from it."""
    lasts = recipe.data.mixture.last_steps(recipe.training.steps)
    begin = (lasts[number - 2] or 0) + 1 if number > 1 else 1
    last = lasts[number - 1]
    return begin <= recipe.training.steps and (last is None or last >= begin)
