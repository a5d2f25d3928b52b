"""Whether diversity falls from generation to generation of text that models wrote from text of the one before.

A model trained on what a model wrote loses the tails of the distribution first (Shumailov et al. 2024). Each
generation is cut into blocks of documents of the same length, each block is measured, and a trend among the blocks
is tested, so that what two samples of the same text may differ by is not taken for a trend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from stoker.data.minhash import Hashes
from stoker.data.synthetic.diversity import compression_ratio
from stoker.data.synthetic.runs import (
    SampledText,
    cut_to,
    distinct_share,
    of_one_length,
    runs_of,
    sampled,
    tokens_in,
)
from stoker.errors import BadInput

Floats = npt.NDArray[np.float64]
MEASURES = ("distinct_2", "distinct_3", "compressed", "tail")
"""Different runs of 2 and of 3 tokens over all such runs; compressed bytes over bytes; share of the runs of 2
tokens that are not among those that make up the commoner half of the first generation."""
BLOCKS = 12
_SURE = 0.01
"""Chance that generations which are all alike give any warning (Bonferroni over the measures)."""
_WORTH_IT = 0.03
"""A fall by less than this part is none to warn of."""
_LEAST_TOKENS = 300


@dataclass(frozen=True, slots=True)
class Trend:
    """One measure over the generations."""

    measure: str
    means: tuple[float, ...]
    """Of the blocks of each generation."""
    chance: float
    """Of a fall at least as clear among generations that are all alike (one-sided; Jonckheere 1954, Terpstra
    1952)."""
    warns: bool
    """Whether the fall is neither chance nor small."""

    @property
    def change(self) -> float:
        """From the first generation to the last, as a part of the first."""
        return self.means[-1] / self.means[0] - 1 if self.means[0] else 0.0


@dataclass(frozen=True, slots=True)
class Collapse:
    """What is seen over the generations."""

    generations: tuple[str, ...]
    block_tokens: int
    """Length of each block."""
    trends: tuple[Trend, ...]

    @property
    def warns(self) -> bool:
        """Whether any measure falls."""
        return any(trend.warns for trend in self.trends)


def collapse_over(generations: Mapping[str, Iterable[str]], blocks: int = BLOCKS) -> Collapse:
    """The trends over `generations`, given from the first (real text, or the first model's) to the last.

    Raises `BadInput` for fewer than two, or where one has too few documents or tokens for its blocks.
    """
    if len(generations) < 2:
        raise BadInput("give at least two generations: a trend needs a beginning and an end")
    samples = of_one_length({name: sampled(texts) for name, texts in generations.items()})
    cut = {name: _dealt(sample, blocks) for name, sample in samples.items()}
    length = min(tokens_in(block) for own in cut.values() for block in own)
    if length < _LEAST_TOKENS:
        name = min(samples, key=lambda name: tokens_in(samples[name]))
        raise BadInput(
            f"{name} has {tokens_in(samples[name]):,} words or characters in {len(samples[name]):,} different "
            f"documents; each of {blocks} blocks needs {_LEAST_TOKENS} of them"
        )
    values = _measured(list(cut.values()), length)
    trends = tuple(_trend(name, [generation[name] for generation in values]) for name in MEASURES)
    return Collapse(tuple(generations), length, trends)


def _dealt(sample: Sequence[SampledText], blocks: int) -> list[list[SampledText]]:
    """Documents dealt out to blocks, each to the one that has fewest tokens so far."""
    dealt: list[list[SampledText]] = [[] for _ in range(blocks)]
    sizes = [0] * blocks
    for one in sample:
        place = sizes.index(min(sizes))
        dealt[place].append(one)
        sizes[place] += len(one.tokens)
    return dealt


def _measured(generations: list[list[list[SampledText]]], length: int) -> list[dict[str, Floats]]:
    """The measures of each generation's blocks; of the first, half the blocks say what is common, and the tail is
    measured on the others."""
    rows = [[cut_to(block, length) for block in own] for own in generations]
    common = _commoner_half([row for block in rows[0][::2] for row in block])
    size = min(sum(len(one.text.encode()) for one in block) for own in generations for block in own)
    found = []
    for number, (blocks, own) in enumerate(zip(generations, rows, strict=True)):
        measured = own[1::2] if number == 0 else own
        found.append(
            {
                "distinct_2": np.asarray([distinct_share(runs_of(block, 2)) for block in own]),
                "distinct_3": np.asarray([distinct_share(runs_of(block, 3)) for block in own]),
                "compressed": np.asarray([1 / compression_ratio(block, size) for block in blocks]),
                "tail": np.asarray([1 - np.isin(runs_of(block, 2), common).mean() for block in measured]),
            }
        )
    return found


def _commoner_half(rows: Iterable[Hashes]) -> npt.NDArray[np.uint64]:
    """The commonest runs of 2 tokens, as many as make up half of all."""
    runs, counts = np.unique(runs_of(rows, 2), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    reached = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2) + 1
    return np.sort(runs[order[:reached]])


def _trend(measure: str, groups: Sequence[Floats]) -> Trend:
    means = tuple(float(group.mean()) for group in groups)
    chance = falling_chance(groups)
    fell = means[-1] < (1 - _WORTH_IT) * means[0]
    return Trend(measure, means, chance, fell and chance < _SURE / len(MEASURES))


def falling_chance(groups: Sequence[Floats]) -> float:
    """Chance that groups drawn from one distribution fall at least so clearly, from the first to the last.

    The test of Jonckheere and Terpstra in its normal approximation, without correction for ties.
    """
    falls = sum(
        float((before[:, None] > after[None, :]).sum() + 0.5 * (before[:, None] == after[None, :]).sum())
        for place, before in enumerate(groups)
        for after in groups[place + 1 :]
    )
    sizes = np.asarray([len(group) for group in groups], np.float64)
    total = sizes.sum()
    mean = (total**2 - (sizes**2).sum()) / 4
    variance = (total**2 * (2 * total + 3) - (sizes**2 * (2 * sizes + 3)).sum()) / 72
    return 1 - NormalDist().cdf((falls - mean) / sqrt(variance)) if variance else 1.0
