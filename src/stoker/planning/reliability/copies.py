"""Where a simulated run stands between its copies, and what it goes back to when it fails.

Runs are entries of arrays. *Uptime* counts training and stalls on an axis without failures, *work* training alone;
a run that goes back to a copy goes back on both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stoker.planning.reliability.process import Process

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
_ROUNDING = 1e-9


class Copies:
    """Uptime and work of each run, and the newest copy of each level that can be restored."""

    def __init__(self, process: Process, runs: int) -> None:
        self._levels = process.levels
        self._periods = self._whole_periods()
        self.uptime: Floats = np.zeros(runs)
        self.work: Floats = np.zeros(runs)
        self._restorable: list[Floats] = [np.zeros(runs) for _ in process.levels]
        self._step_began: Floats = np.zeros(runs)
        """Work at which the steps since the last failure began."""

    def _whole_periods(self) -> list[float]:
        periods: list[float] = []
        for position, level in enumerate(self._levels):
            inner = periods[-1] * level.every if position else level.interval
            periods.append(inner + level.stall)
        return periods

    def work_at(self, uptime: Floats) -> Floats:
        """Work that is done after so much uptime without a failure."""
        if not self._levels:
            return uptime.copy()
        work: Floats = np.zeros_like(uptime)
        left = uptime
        for position in range(len(self._levels) - 1, -1, -1):
            whole = np.floor(left / self._periods[position] + _ROUNDING)
            left = np.maximum(left - whole * self._periods[position], 0.0)
            if position + 1 < len(self._levels):
                every = self._levels[position + 1].every
                left = np.where(whole >= every, 0.0, left)  # the farther level's stall
                whole = np.minimum(whole, every)
            work = work + whole * self._levels[position].interval
        result: Floats = work + np.minimum(left, self._levels[0].interval)
        return result

    def uptime_at(self, work: Floats) -> Floats:
        """Uptime at which so much work is done and the copies due then are taken."""
        uptime = work
        for level in self._levels:
            uptime = uptime + level.stall * np.floor(work / level.interval + _ROUNDING)
        return uptime

    def advance(self, seconds: Floats) -> Floats:
        """Let uptime pass; returns the work done in it."""
        self.uptime += seconds
        before, self.work = self.work, self.work_at(self.uptime)
        done: Floats = self.work - before
        return done

    def lose_step(self, which: Indices, step: Floats) -> Floats:
        """These runs lose the step they are in, which takes `step` seconds; returns the work lost."""
        since = self.work[which] - self._step_began[which]
        lost: Floats = since - np.floor(since / step + _ROUNDING) * step
        self.uptime[which] -= np.maximum(lost, 0.0)
        self.work[which] = self._step_began[which] = self.work_at(self.uptime[which])
        return lost

    def go_back(self, which: Indices, level: int) -> Floats:
        """These runs go back to their newest copy of this level; returns the work lost."""
        for position in range(level, len(self._levels)):
            own = self._levels[position]
            complete = self.work_at(np.maximum(self.uptime[which] - own.write, 0.0))
            newest = np.floor(complete / own.interval + _ROUNDING) * own.interval
            kept = self._restorable[position]
            kept[which] = np.maximum(kept[which], newest)
        restored = self._restorable[level][which]
        for position in range(level):  # nearer copies are gone; what was restored is where they start again
            self._restorable[position][which] = restored
        lost: Floats = self.work[which] - restored
        self.work[which] = restored
        self.uptime[which] = self.uptime_at(restored)
        self._step_began[which] = restored
        return lost
