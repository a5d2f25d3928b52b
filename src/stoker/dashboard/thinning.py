"""Long series as few points that draw the same picture, so that a spike of one step is seen however long the run.

Values are put into as many buckets as there are pixels. Of each bucket its lowest and its highest value are kept,
in the order they came, and its mean, from which the page draws the smoothed curve. A short series is kept whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stoker.dashboard.columns import Integers, Numbers


@dataclass(frozen=True)
class Buckets:
    """How values `first` to `last` (exclusive) of a series are put into buckets of `size` values."""

    first: int
    last: int
    size: int

    @classmethod
    def of(cls, first: int, last: int, pixels: int) -> Buckets:
        """Buckets for values `first` to `last` on so many pixels.

        Sizes are powers of two and buckets begin at multiples of them, so that they stay the same while a run grows
        and while one pans.
        """
        count = max(0, last - first)
        size = 1
        while count > 2 * pixels * size:
            size *= 2
        return cls(first // size * size if count else first, last, size)

    @property
    def count(self) -> int:
        """The number of buckets."""
        return -(-max(0, self.last - self.first) // self.size)

    @property
    def places(self) -> Integers:
        """Where the points to draw are: every value, or the begin and the middle of each bucket."""
        if self.size == 1:
            return np.arange(self.first, self.last)
        begins = self.first + np.arange(self.count) * self.size
        middles = np.minimum(begins + self.size // 2, self.last - 1)
        return np.stack([begins, middles], axis=1).ravel()

    def points(self, values: Numbers) -> Numbers:
        """Every value; or of each bucket the lowest and the highest, as they came. NaN where nothing is finite."""
        if self.size == 1:
            return values[self.first : self.last]
        table = self._table(values)
        finite = np.isfinite(table)
        lowest = np.where(finite, table, np.inf).argmin(axis=1)
        highest = np.where(finite, table, -np.inf).argmax(axis=1)
        rows = np.arange(self.count)
        pairs = np.stack(
            [table[rows, np.minimum(lowest, highest)], table[rows, np.maximum(lowest, highest)]], axis=1
        )
        pairs[~finite.any(axis=1)] = np.nan
        return pairs.ravel()

    def means(self, values: Numbers) -> Numbers:
        """Mean of the finite values of each bucket; NaN where there are none."""
        table = self._table(values)
        finite = np.isfinite(table)
        count = finite.sum(axis=1)
        return np.where(count > 0, np.where(finite, table, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)

    def largest(self, values: Numbers) -> Numbers:
        """The highest finite value of each bucket; NaN where there is none."""
        table = self._table(values)
        highest = np.where(np.isfinite(table), table, -np.inf).max(axis=1) if self.count else np.zeros(0)
        return np.where(np.isfinite(highest), highest, np.nan)

    def not_finite(self, values: Numbers) -> Integers:
        """Places of values that were recorded and are not finite."""
        return self.first + np.flatnonzero(np.isinf(values[self.first : self.last]))

    def _table(self, values: Numbers) -> Numbers:
        inside = values[self.first : self.last]
        padded = np.full(self.count * self.size, np.nan)
        padded[: inside.size] = inside
        return padded.reshape(self.count, self.size)
