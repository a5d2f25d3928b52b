"""Finds the rank that makes all others wait: when steps take longer than they did, every rank is timed alone.

In a step every rank takes as long as the slowest, and where the time goes shows only that the others wait. So the
same small work is given to each, without communication, and the times are compared.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from dataclasses import dataclass, field

import torch

from stoker.parallel import World
from stoker.training.clock import PhaseClock

_USUAL_STEPS, _RECENT_STEPS = 64, 8
_FIRST_LOOK = 12
"""After so many steps of a start the ranks are compared once in any case: a rank may be slow from the beginning."""
_DROP = 1.3
"""The recent median over the usual one, from which on steps count as slower."""
_SLOW = 1.5
"""A rank's time over the median of all, from which on it counts as slow."""
_LOOKS = 5
"""In so many comparisons, after one step each, a rank must be slow to be called so: on a machine that others use as
well some rank is slow at any moment."""
_TIMES, _WIDTH = 12, 384


@dataclass
class Slowness:
    """Watches how long steps take, on each rank alike."""

    usual: deque[float] = field(default_factory=lambda: deque(maxlen=_USUAL_STEPS))
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    _steps: int = 0
    _looks: int = 0
    _suspects: set[int] = field(default_factory=set)

    def note(self, seconds: float) -> bool:
        """Take in how long a step took; whether this rank wants all ranks to be timed."""
        self._steps += 1
        if len(self.recent) == _RECENT_STEPS:
            self.usual.append(self.recent[0])
        self.recent.append(seconds)
        return self._steps == _FIRST_LOOK or self.ratio > _DROP

    @property
    def ratio(self) -> float:
        """How much longer the recent steps took than the usual ones; 1 where too few are known."""
        if len(self.usual) < _RECENT_STEPS:
            return 1.0
        return statistics.median(self.recent) / max(statistics.median(self.usual), 1e-9)

    @property
    def usual_step(self) -> float:
        """Seconds that a step takes; 0 before the first."""
        return statistics.median(self.recent) if self.recent else 0.0

    @property
    def looking(self) -> bool:
        """Whether ranks that were slow are to be compared again after the next step; the same on all ranks."""
        return self._looks > 0

    def compared(self, seconds: list[float]) -> list[int]:
        """Take in how long each rank takes alone; the ranks that were slow in all comparisons, after the last."""
        slow = set(slow_ranks(seconds))
        self._suspects = self._suspects & slow if self._looks else slow
        self._looks += 1
        if self._suspects and self._looks < _LOOKS:
            return []
        self._looks = 0
        self.begin_anew()
        return sorted(self._suspects)

    def begin_anew(self) -> None:
        """What has been looked into is the usual from now on, so that it is not looked into at every step."""
        self.usual.clear()
        self.recent.clear()


def time_ranks(world: World, clock: PhaseClock) -> list[float]:
    """Seconds that the same matrix products take on each rank, in order of rank: the best of three, so that what
    disturbs a machine for a moment makes no rank slow. Collective."""
    width = torch.ones(_WIDTH, _WIDTH, device=world.device)
    product = width @ width  # what is set up the first time is not timed
    _wait_for(world.device)
    own = []
    for _ in range(3):
        world.barrier()
        begun = time.perf_counter()
        with clock.phase("forward"):
            for _ in range(_TIMES):
                torch.matmul(width, width, out=product)
            _wait_for(world.device)
        own.append(time.perf_counter() - begun)
    seconds = torch.zeros(world.layout.world_size, dtype=torch.float64, device=world.device)
    seconds[world.rank] = min(own)
    return [float(one) for one in world.sum(seconds)]


def slow_ranks(seconds: list[float]) -> list[int]:
    """Those that take much longer than the median of all; of two ranks, than the other."""
    usual = statistics.median_low(seconds)
    return [rank for rank, own in enumerate(seconds) if own > _SLOW * usual]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
