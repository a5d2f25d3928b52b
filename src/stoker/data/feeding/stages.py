"""The recipe's mixture worked out: in which samples which sources stand in which proportion.

Everything here follows from the recipe and the number of training tokens of each source. Stages are worked out in
order and no stage looks at a later one, so that editing a later stage changes no sample of an earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stoker.data.feeding.mixture import LONGEST_PATTERN, apportioned, pattern_counts
from stoker.data.feeding.weights import Table, table_of
from stoker.data.repetition import effective_tokens
from stoker.errors import BadInput
from stoker.plural import counted
from stoker.recipe import DocumentLimits, Recipe

RAMP_PIECES = 100
"""A linear change goes in at most so many equal pieces of whole steps."""
_RAMP_PATTERN = 1000
"""Longest pattern of a piece of a ramp: its shares are held to a thousandth, and the next piece makes up for it."""

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """Lengths in tokens of the documents that are taken; None where there is no limit."""

    minimum: int | None = None
    maximum: int | None = None

    def of(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of documents of such `lengths` are taken: bool [documents]."""
        most = np.iinfo(np.int64).max if self.maximum is None else self.maximum
        return np.asarray((lengths >= (self.minimum or 0)) & (lengths <= most))

    def __str__(self) -> str:
        parts = [(self.minimum, "at least"), (self.maximum, "at most")]
        words = [f"{word} {number:,} tokens" for number, word in parts if number is not None]
        return " and ".join(words) or "any length"


@dataclass(frozen=True)
class Segment:
    """Steps in which the sources stand in one proportion."""

    stage: int
    """Number of the recipe's stage, from 1."""
    first_step: int
    first_sample: int
    counts: tuple[int, ...]
    """Samples of each source in one pattern."""
    limits: tuple[Limits, ...]
    """Of each source."""
    shares: tuple[float, ...]
    """Share of each source that is meant: a pattern of few samples has it only together with its neighbours'."""


@dataclass(frozen=True)
class _Piece:
    """A stretch of steps and what it asks for."""

    stage: int
    first_step: int
    last_step: int
    """Even where the run does not come so far: a longer run has the same stages, but for the last one."""
    weights: Table
    limits: tuple[Limits, ...]
    of_ramp: bool = False
    goes_on: bool = False
    """Whether it is a later piece of a ramp."""


def segments_of(recipe: Recipe, tokens: Mapping[str, int]) -> tuple[Segment, ...]:
    """The mixture over a run of `recipe` on sources with so many training tokens, in the order of `tokens`.

    The last segment goes on for ever. Neighbours that are alike are one. Raises `BadInput` when a source that is
    to be drawn from has fewer tokens than one sequence, or more would be drawn than `most_epochs` allows.
    """
    names = tuple(tokens)
    _require_sequences(recipe, tokens)
    drawn = target = used = np.zeros(len(names))
    found: list[Segment] = []
    for piece in _pieces(recipe, tokens):
        samples = _samples_in(recipe, piece.first_step, piece.last_step)
        in_run = _samples_in(recipe, piece.first_step, min(piece.last_step, recipe.training.steps))
        if not piece.goes_on:
            target = drawn
        target = target + samples * _as_shares(piece.weights)
        # What earlier pieces of a ramp rounded off is made up for, so that it never adds up.
        weights = np.maximum(target - drawn, 0) if piece.of_ramp else piece.weights
        filled = _filled(recipe, tokens, weights, used, in_run, piece)
        counts = _counts(piece, weights, samples) if filled is None else apportioned(filled, LONGEST_PATTERN)
        first_sample = recipe.training.samples_before(piece.first_step)
        shares = np.array(counts) / sum(counts)
        drawn, used = drawn + samples * shares, used + in_run * shares
        meant = _as_shares(piece.weights) if piece.of_ramp and filled is None else shares
        found.append(
            Segment(piece.stage, piece.first_step, first_sample, counts, piece.limits, tuple(meant.tolist()))
        )
        if filled is not None:
            target = drawn  # nor is it made up for what others were given instead
    _require_allowed(recipe, tokens, used)
    return _merged(found)


def samples_in_run(recipe: Recipe) -> int:
    """Samples in all steps of the run together."""
    return recipe.training.samples_before(recipe.training.steps + 1)


def same_until(one: Sequence[Segment], other: Sequence[Segment], samples: int) -> bool:
    """Whether the first `samples` samples are the same by both."""
    before, after = (
        [(part.first_sample, part.counts, part.limits) for part in parts if part.first_sample < samples]
        for parts in (one, other)
    )
    return before == after


def segment_at(segments: Sequence[Segment], step: int) -> Segment:
    """The segment that `step` (the first is 1) belongs to."""
    return [segment for segment in segments if segment.first_step <= step][-1]


def _pieces(recipe: Recipe, tokens: Mapping[str, int]) -> list[_Piece]:
    """The stages in order, those that change linearly cut into pieces."""
    mixing, steps = recipe.data.mixture, recipe.training.steps
    by_default = table_of(recipe, tokens, mixing.weights)
    free = (Limits(),) * len(tokens)
    if not mixing.stages:
        return [_Piece(1, 1, steps, by_default, free)]
    found: list[_Piece] = []
    before, first = by_default, 1
    for number, (stage, until) in enumerate(zip(mixing.stages, mixing.last_steps(steps), strict=True), start=1):
        last = max(steps, first) if until is None else until
        if last < first:
            continue
        weights = table_of(recipe, tokens, mixing.weights if stage.weights is None else stage.weights)
        limits = tuple(_limits_of(stage.documents, name) for name in tokens)
        whole = _Piece(number, first, last, weights, limits)
        found += [whole] if stage.change == "jump" else _ramp(whole, before)
        before, first = weights, last + 1
    return found


def _ramp(whole: _Piece, before: Table) -> list[_Piece]:
    """Pieces with the shares that the line between two mixtures has in their middle."""
    first, steps = whole.first_step, whole.last_step - whole.first_step + 1
    begin, end = _as_shares(before), _as_shares(whole.weights)
    edges = [first + steps * number // min(RAMP_PIECES, steps) for number in range(min(RAMP_PIECES, steps) + 1)]
    found = []
    for start, after in pairwise(edges):
        passed = ((start + after) / 2 - first) / steps
        weights = (begin + passed * (end - begin)).tolist()
        found.append(replace(whole, first_step=start, last_step=after - 1, weights=weights, of_ramp=True,
                             goes_on=start > first))  # fmt: skip
    return found


def _limits_of(documents: DocumentLimits, source: str) -> Limits:
    if documents.sources and source not in documents.sources:
        return Limits()
    return Limits(documents.minimum_tokens, documents.maximum_tokens)


def _samples_in(recipe: Recipe, first_step: int, last_step: int) -> int:
    training = recipe.training
    return max(0, training.samples_before(last_step + 1) - training.samples_before(first_step))


def _as_shares(weights: Table | Shares) -> Shares:
    given = np.array([float(weight) for weight in weights])
    return np.asarray(given / given.sum())


def _counts(piece: _Piece, weights: Table | Shares, samples: int) -> tuple[int, ...]:
    """Samples of each source in the piece's pattern."""
    if piece.of_ramp:
        fractions = [Fraction(float(weight)) for weight in weights]
        return apportioned(fractions, min(samples, _RAMP_PATTERN), all_appear=False)
    return pattern_counts(piece.weights)


def _allowed(recipe: Recipe, source: str, tokens: int) -> float:
    """Samples that may be drawn of a source in the whole run."""
    cap = recipe.data.mixture.cap_of(source)
    return math.inf if cap is None else cap * tokens / recipe.training.sequence_length


def _filled(
    recipe: Recipe, tokens: Mapping[str, int], weights: Table | Shares, drawn: Shares, samples: int, piece: _Piece
) -> list[Fraction] | None:
    """Samples of each source where what `most_epochs` leaves does not suffice and the rest is to be shared.

    No source gives more than is left of it: what is over goes to the others in proportion to their weights. None
    where nothing is over. Raises `BadInput` when all of them together have not enough left.
    """
    if recipe.data.mixture.when_exceeded != "share" or not samples:
        return None
    wanted = _as_shares(weights) * samples
    allowed = np.array([_allowed(recipe, name, own) for name, own in tokens.items()])
    left = np.floor(np.maximum(allowed - drawn, 0))
    amount, full = wanted.copy(), np.zeros(len(wanted), bool)
    while (over := (amount > left) & ~full).any():
        full |= over
        amount[full] = left[full]
        rest, others = samples - float(amount[full].sum()), float(wanted[~full].sum())
        if rest > 0 and others <= 0:
            raise BadInput(
                f"data.mixture: from step {piece.first_step:,} on, most_epochs leaves "
                f"{int(amount[full].sum()):,} of the {samples:,} sequences that the sources of stage {piece.stage} "
                "are to give. Raise most_epochs, give other sources a weight, or train fewer steps than "
                f"{recipe.training.steps:,}"
            )
        amount[~full] = wanted[~full] * (rest / others) if others > 0 else 0
    return [Fraction(float(one)) for one in amount] if full.any() else None


def _require_sequences(recipe: Recipe, tokens: Mapping[str, int]) -> None:
    L = recipe.training.sequence_length
    taken = recipe.data.taken_sources
    for name, own in tokens.items():
        if name in taken and own < L:
            raise BadInput(
                f"source {name!r} has {counted(own, 'training tokens')}, fewer than one sequence of {L}: "
                "give it more text, lower training.sequence_length, set its weight to 0 or remove "
                "it from the recipe"
            )


def _require_allowed(recipe: Recipe, tokens: Mapping[str, int], drawn: Shares) -> None:
    """Raise `BadInput` with the price of the repeats when more would be drawn than `most_epochs` allows."""
    # A pattern holds shares to within half a sample of its length, and the end of a run may cut one short.
    slack = len(tokens) + samples_in_run(recipe) / LONGEST_PATTERN
    over = []
    for (name, own), samples in zip(tokens.items(), drawn.tolist(), strict=True):
        if samples <= _allowed(recipe, name, own) + slack:
            continue
        amount = samples * recipe.training.sequence_length
        effective = effective_tokens(own, amount)
        over.append(
            f"  {name}: {amount / own:.2f} epochs, but most_epochs is {recipe.data.mixture.cap_of(name):g}; "
            f"{amount:,.0f} tokens drawn from {own:,} are worth {effective:,.0f}, "
            f"{1 - effective / amount:.1%} less"
        )
    if over:
        raise BadInput(
            "data.mixture: sources would be repeated more often than most_epochs allows:\n"
            + "\n".join(over)
            + "\nLower their weights, raise most_epochs, train fewer steps, or set "
            "data.mixture.when_exceeded=share, which gives what is over to sources that have text left. "
            "`stoker data mixture RECIPE` shows all of it"
        )


def _merged(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Without segments that have no sample or go on as the one before them."""
    found: list[Segment] = []
    for segment in segments:
        if found and found[-1].first_sample == segment.first_sample:
            found.pop()
        if found and _what(found[-1]) == _what(segment):
            continue
        found.append(segment)
    return tuple(found)


def _what(segment: Segment) -> tuple[object, ...]:
    return segment.counts, segment.limits, segment.shares
