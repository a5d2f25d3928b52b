"""Which source a sample comes from when the mixture changes over the run: a pattern for each segment.

Every source is numbered through from the first sample of the run, so that a new mixture goes on where the old
one left off: no sample of a source is lost at a boundary, and none comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from stoker.data.feeding.mixture import Integers, Mixture
from stoker.data.feeding.stages import Limits, Segment

Selection = tuple[int, Limits]
"""From which of a source's samples on documents of which lengths are taken."""
_mixture = lru_cache(maxsize=256)(Mixture.of_counts)


class StagedMixture:
    """Tells for every sample number its source and how many samples of that source came before it."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        """`segments` in order, the first from sample 0; the last goes on for ever."""
        self.segments = tuple(segments)
        self._firsts = np.array([segment.first_sample for segment in segments], np.int64)
        self._mixtures = [_mixture(segment.counts) for segment in segments]
        before = [np.zeros(len(segments[0].counts), np.int64)]
        for mixture, length in zip(self._mixtures, np.diff(self._firsts).tolist(), strict=False):
            before.append(before[-1] + mixture.count_before(length))
        self._before = np.stack(before)

    def locate(self, samples: Integers) -> tuple[Integers, Integers]:
        """Source of each sample, and its number within that source: int64, both of the shape of `samples`."""
        sources, numbers = np.empty_like(samples), np.empty_like(samples)
        places = np.searchsorted(self._firsts, samples, side="right") - 1
        for place in np.unique(places).tolist():
            rows = places == place
            own, number = self._mixtures[place].locate(samples[rows] - self._firsts[place])
            sources[rows], numbers[rows] = own, number + self._before[place][own]
        return sources, numbers

    def count_before(self, sample: int) -> Integers:
        """Samples of each source among the first `sample` samples: int64 [sources]."""
        place = int(np.searchsorted(self._firsts, sample, side="right")) - 1
        counted: Integers = self._before[place] + self._mixtures[place].count_before(
            sample - int(self._firsts[place])
        )
        return counted

    @property
    def last(self) -> Mixture:
        """The mixture at the end of the run, and for ever after."""
        return self._mixtures[-1]

    def samples_of(self, source: int, numbers: Integers) -> Integers:
        """The samples in which the `numbers`-th samples of `source` come, all of the last segment: int64 [numbers].

        Raises `ValueError` for one of an earlier segment, or of a source that the last segment has not.
        """
        mixture, within = self.last, numbers - self._before[-1][source]
        if mixture.counts[source] == 0 or (within < 0).any():
            raise ValueError(f"samples of source {source} outside the last segment")
        order = np.flatnonzero(mixture.locate(np.arange(mixture.length))[0] == source)
        rounds, rank = np.divmod(within, mixture.counts[source])
        return np.asarray(self._firsts[-1] + rounds * mixture.length + order[rank])

    def selections(self, source: int) -> list[Selection]:
        """Which documents of a source are taken, in order. Neighbours differ; the first begins with sample 0."""
        found: list[Selection] = []
        for segment, before in zip(self.segments, self._before[:, source].tolist(), strict=True):
            if segment.counts[source] == 0:
                continue
            if found and found[-1][0] == before:  # too short to have had any of this source
                found.pop()
            if not found or found[-1][1] != segment.limits[source]:
                found.append((before, segment.limits[source]))
        return found or [(0, Limits())]
