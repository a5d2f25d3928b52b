"""Failures that a drill injects at intervals of its own: drawn for the simulation, and their residual times.

Failures that come at random need neither: from any moment on, the next is as far away as from any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Spacing = Literal["random", "regular", "uniform"]
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
_POINTS, _RESTS = 1024, 16
_MOST_STEPS = 4096
_MOST_DRAWN = 200
"""Failures within one pause that are drawn one by one; of more only their number is worked out."""


class Schedule:
    """When the next failure of each run is due, on its wall clock."""

    def __init__(self, spacing: Spacing, mean: float, runs: int, random: np.random.Generator) -> None:
        self._regular, self._mean, self._random = spacing == "regular", mean, random
        self.next: Floats = mean * random.random(runs)

    def pass_on(self, which: Indices) -> None:
        """These runs' failures have come; the next ones are due an interval later."""
        self.next[which] += self._intervals(len(which))

    def missed(self, which: Indices, wall: Floats) -> Indices:
        """How many came while the clock went to `wall` unwatched; afterwards none is due before it."""
        found = np.zeros(len(which), dtype=np.int64)
        many = np.flatnonzero(wall - self.next[which] > _MOST_DRAWN * self._mean)
        if len(many):
            count = np.floor((wall[many] - self.next[which[many]]) / self._mean).astype(np.int64)
            self.next[which[many]] += count * self._mean
            found[many] = count
        late = np.flatnonzero(self.next[which] <= wall)
        while len(late):
            found[late] += 1
            self.pass_on(which[late])
            late = late[self.next[which[late]] <= wall[late]]
        return found

    def _intervals(self, count: int) -> Floats:
        if self._regular:
            return np.full(count, self._mean)
        return 2 * self._mean * self._random.random(count)


def survival_after(spacing: Spacing, mean: float, since: float, further: Floats) -> Floats:
    """Chance that no failure comes for `further` seconds, `since` seconds after one that others may have followed.

    Uniform intervals up to c = 2 mean renew with density exp(y/c)/c until c; after c they hardly know of the first.
    """
    if spacing == "regular":
        regular: Floats = (further < mean - since % mean).astype(np.float64)
        return regular
    longest = 2 * mean
    if since >= longest:
        afterwards: Floats = np.maximum(1 - further / longest, 0.0) ** 2
        return afterwards
    rest = 1 - (since + further) / longest
    low, high = np.maximum(-rest, 0.0), since / longest
    renewed = np.exp(high) * (rest + high - 1) - np.exp(low) * (rest + low - 1)
    alive: Floats = np.clip(np.maximum(rest, 0.0) + np.where(low < high, renewed, 0.0), 0.0, 1.0)
    return alive


@dataclass(frozen=True)
class Between:
    """Means between the end of one failure's pause and the next failure."""

    uptime: float
    first: float
    """Of the uptime, in a pause that it begins with."""
    steps: float
    """Whole ones, without that pause and with it."""
    steps_after: float


def between(spacing: Spacing, mean: float, step: float, pause: float, first: float) -> Between:
    """From a failure's pause to the next failure, where uptime may begin with a pause of `first` seconds.

    The failure came somewhere in a step, whose rest is part of its pause; all that fails in it is part of it.
    """
    seconds: Floats = np.linspace(0.0, 2 * mean, _POINTS)
    few = 2 * mean < _MOST_STEPS * step
    ends: Floats = step * np.arange(1, int(2 * mean / step) + 2 if few else 1, dtype=np.float64)
    found = np.zeros(4)
    rests = (np.arange(_RESTS) + 0.5) / _RESTS * step
    for rest in rests.tolist():
        since = rest + pause
        alive = survival_after(spacing, mean, since, seconds)
        uptime = float(np.trapezoid(alive, seconds))
        began = float(np.trapezoid(np.where(seconds < first, alive, 0.0), seconds))
        steps, after = uptime / step - 0.5, (uptime - began) / step - 0.5
        if few:
            steps = float(survival_after(spacing, mean, since, ends).sum())
            after = float(survival_after(spacing, mean, since, ends + first).sum())
        found += np.maximum((uptime, began, steps, after), 0.0) / _RESTS
    return Between(*found.tolist())
