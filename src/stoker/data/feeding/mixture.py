"""Which source a sample comes from: a fixed pattern of sources, repeated until the mixture changes.

Weights become whole numbers of samples per pattern, so shares are exact over every whole pattern and
cannot drift. Inside the pattern the sources are interleaved as evenly as can be: after n samples each
source has had its share of n to within 1 - 1/(2S - 2) samples, for S sources (Tijdeman 1980, "The
chairman assignment problem"), and therefore any window of samples holds its share to within less than 2.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

LONGEST_PATTERN = 100_000
"""Weights given to five decimals are represented exactly; others to within half of 1/100,000."""

Integers = npt.NDArray[np.int64]


class Mixture:
    """Tells for every sample number its source and how many samples of that source came before it."""

    def __init__(self, weights: Sequence[float | int]) -> None:
        """`weights`: one a source, not negative, at least one positive; only their ratios matter."""
        self._repeat(pattern_counts(weights))

    @classmethod
    def of_counts(cls, counts: tuple[int, ...]) -> Mixture:
        """The mixture whose pattern has so many samples of each source."""
        mixture = cls.__new__(cls)
        mixture._repeat(counts)
        return mixture

    def _repeat(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self.length = sum(self.counts)
        self._sources = interleaved(self.counts)
        self._ranks = np.empty(self.length, np.int64)
        for source, count in enumerate(self.counts):
            self._ranks[self._sources == source] = np.arange(count)
        self._counts = np.array(self.counts, np.int64)

    def locate(self, samples: Integers) -> tuple[Integers, Integers]:
        """Source of each sample, and its number within that source: int64, both of the shape of `samples`."""
        rounds, places = np.divmod(samples, self.length)
        sources = self._sources[places]
        return sources, rounds * self._counts[sources] + self._ranks[places]

    def count_before(self, sample: int) -> Integers:
        """Samples of each source among the first `sample` samples: int64 [sources]."""
        rounds, rest = divmod(sample, self.length)
        return rounds * self._counts + np.bincount(self._sources[:rest], minlength=len(self.counts))


def pattern_counts(weights: Sequence[float | int]) -> tuple[int, ...]:
    """Samples of each source in one pattern.

    The shortest pattern that represents the weights, read as the decimals they were written as,
    exactly; or, where that is longer than `LONGEST_PATTERN`, the nearest one of that length (largest
    remainders), in which every positive weight still has at least one sample.
    """
    return apportioned([Fraction(str(weight)) for weight in weights], LONGEST_PATTERN)


def apportioned(weights: Sequence[Fraction], longest: int, all_appear: bool = True) -> tuple[int, ...]:
    """As `pattern_counts`, with a pattern of at most `longest` samples.

    Without `all_appear` a weight below half a sample may come to none at all.
    """
    total = sum(weights)
    shares = [weight / total for weight in weights]
    length = math.lcm(*(share.denominator for share in shares))
    if length <= longest:
        return tuple(int(share * length) for share in shares)
    ideal = [share * longest for share in shares]
    least = 1 if all_appear else 0
    counts = [max(math.floor(count), least if count > 0 else 0) for count in ideal]
    # Usually a few samples are left to give; many tiny sources rounded up to one may have taken some too many.
    while (left := longest - sum(counts)) != 0:
        step = 1 if left > 0 else -1
        open_to_change = [i for i, count in enumerate(counts) if ideal[i] > 0 and count + step >= least]
        most_wanting = max(open_to_change, key=lambda i: (step * (ideal[i] - counts[i]), -i))
        counts[most_wanting] += step
    return tuple(counts)


def interleaved(counts: Sequence[int]) -> Integers:
    """One pattern: the source of each place, int64 [sum of counts], each source spread evenly.

    Every sample of a source may come no sooner and no later than the bound in the module's
    docstring allows; among those that may come now, the one with the earliest deadline does.
    """
    length = sum(counts)
    present = [source for source, count in enumerate(counts) if count]
    if len(present) == 1:
        return np.full(length, present[0], np.int64)
    slack = 2 * len(present) - 2
    releases, deadlines, owners = [], [], []
    for source in present:
        earlier = np.arange(counts[source], dtype=np.int64)
        releases.append(-(-length * (earlier * slack + 1) // (counts[source] * slack)))
        deadlines.append(length * ((earlier + 1) * slack - 1) // (counts[source] * slack))
        owners.append(np.full(counts[source], source, np.int64))
    release = np.concatenate(releases)
    order = np.argsort(release, kind="stable")
    waiting = zip(
        release[order].tolist(),
        np.concatenate(deadlines)[order].tolist(),
        np.concatenate(owners)[order].tolist(),
        strict=True,
    )
    pattern = np.empty(length, np.int64)
    ready: list[tuple[int, int]] = []
    coming = next(waiting, None)
    for place in range(length):
        while coming is not None and coming[0] <= place + 1:
            heapq.heappush(ready, (coming[1], coming[2]))
            coming = next(waiting, None)
        pattern[place] = heapq.heappop(ready)[1]
    return pattern
