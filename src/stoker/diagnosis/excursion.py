"""Where a curve of logarithms leaves its usual, where that began, and whether and when it came back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stoker.diagnosis.recent_past import Numbers, Usual, window_of

_ONSET_SHARE = 0.3
"""Of the rise, from which on a row belongs to it."""
_CHUNK = 256


@dataclass(frozen=True)
class Excursion:
    """Rows `first` to `last`, both included; all are row numbers."""

    first: int
    """Where the rise began, at or before the first row that stands out."""
    noticed: int
    """The first row that stands out."""
    peak: int
    last: int
    recovered: int | None
    """The first row that is back at the usual; None when none is."""
    expected: float
    """Logarithm of what was usual when it was noticed."""
    limit: float

    @property
    def rows(self) -> int:
        """How many rows it takes up."""
        return self.last - self.first + 1


def excursions(logs: Numbers, usual: Usual) -> list[Excursion]:
    """Every stretch of rows above the limit, until a row, and the median of it and the next two, is back within
    a third of it.

    What was usual is held at the moment the stretch begins, so that a long one does not become its own usual.
    """
    if logs.size < 4:
        return []
    high = np.flatnonzero(logs - usual.expected > usual.limit)
    ahead = np.maximum(_median_of_three_ahead(logs), logs)
    found, at = [], 0
    while at < high.size:
        noticed = int(high[at])
        expected, limit = float(usual.expected[noticed]), float(usual.limit[noticed])
        recovered = first_below(ahead, noticed + 1, expected + max(limit / 3, 0.01))
        last = (logs.size if recovered is None else recovered) - 1
        first = _onset(logs, noticed)
        peak = noticed + int(np.argmax(logs[noticed : last + 1]))
        found.append(Excursion(first, noticed, peak, last, recovered, expected, limit))
        at = int(np.searchsorted(high, last + 1))
    return found


def _onset(logs: Numbers, noticed: int) -> int:
    """The first row of the rise that ends at `noticed`, from the lowest row of the window before it."""
    begin = max(0, noticed - window_of(logs.size))
    lowest = begin + int(np.argmin(logs[begin:noticed]))
    bar = logs[lowest] + _ONSET_SHARE * (logs[noticed] - logs[lowest])
    first = noticed
    while first - 1 > lowest and logs[first - 1] > bar:
        first -= 1
    return first


def _median_of_three_ahead(logs: Numbers) -> Numbers:
    """For each row the median of it and the two rows after it; at the end the larger of what is left."""
    padded = np.concatenate([logs, logs[-1:], logs[-1:]])
    return np.asarray(np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0), dtype=np.float64)


def first_below(values: Numbers, begin: int, bar: float) -> int | None:
    """The first row from `begin` on that is not above `bar`."""
    size = _CHUNK
    while begin < values.size:
        below = np.flatnonzero(values[begin : begin + size] <= bar)
        if below.size:
            return begin + int(below[0])
        begin, size = begin + size, size * 2
    return None
