"""When a rank that says nothing counts as hanging: the threshold follows the measured step, not a fixed time."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.recipe import Recovery
from stoker.training.marks import Mark

RARE = ("starting", "loading", "evaluation", "checkpoint", "finishing")
"""Phases that are not part of every step: how long they may be silent is learned from themselves."""
_STEPS_REMEMBERED = 101
_BUSY_FACTOR = 4.0
"""A rank that computes is given so many times longer than one that waits or is stopped."""
_LEARNED_FACTOR = 3.0


@dataclass
class _Rank:
    beats: int = -1
    phase: str = "starting"
    step: int = 0
    heard: float = 0.0
    """When its marks last changed."""


@dataclass
class Silence:
    """Watches the marks of one attempt's ranks. What it has learned is passed on to the next attempt."""

    recovery: Recovery
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS_REMEMBERED))
    """Seconds of the last steps."""
    longest: dict[str, float] = field(default_factory=dict)
    """Longest silence seen in each rare phase, and in an attempt's first step (`first step`), that then ended."""
    _ranks: list[_Rank] = field(default_factory=list)
    _first_step: int | None = None

    def begin(self, ranks: int, now: float) -> None:
        """An attempt of `ranks` ranks begins."""
        self._ranks = [_Rank(heard=now) for _ in range(ranks)]
        self._first_step = None

    def look(self, marks: Sequence[Mark], now: float, blind: float = 0.0) -> None:
        """Take in the marks. For `blind` seconds before `now` nobody looked: they count for no rank's silence."""
        for rank, mark in zip(self._ranks, marks, strict=True):
            rank.heard += blind
            if mark.beats == rank.beats:
                continue
            self._learn(rank, now - rank.heard)
            rank.beats, rank.phase, rank.heard = mark.beats, mark.phase, now
            if mark.step != rank.step:
                if self._first_step is None and rank.step:
                    self._first_step = mark.step
                rank.step = mark.step
                if rank is self._ranks[0] and mark.step_seconds:
                    self.steps.append(mark.step_seconds)

    @property
    def median_step(self) -> float | None:
        """Seconds; None before the first step."""
        return statistics.median(self.steps) if self.steps else None

    def silent_for(self, rank: int, now: float) -> float:
        """Seconds since the rank's last mark."""
        return now - self._ranks[rank].heard

    def limit(self, rank: int) -> float:
        """Longest silence of a rank that is not stopped, seconds."""
        phase = self._kind(self._ranks[rank])
        least = self.shortest_limit
        if phase is None:
            return least
        if phase not in self.longest:
            return max(least, self.recovery.start_seconds)
        return max(least, _LEARNED_FACTOR * self.longest[phase])

    @property
    def shortest_limit(self) -> float:
        """Longest silence in the middle of a step, or of a stopped process in any phase, seconds."""
        return max(self.recovery.hang_seconds, self.recovery.hang_steps * (self.median_step or 0.0))

    def hanging(self, now: float, states: Sequence[str]) -> list[int]:
        """The ranks whose silence has lasted too long.

        `states` are the processes' states as the system names them (`T` stopped, `R` running, `S` sleeping,
        `D` waiting for the disk): only what does not run hangs at once.
        """
        found = []
        for number, state in enumerate(states):
            silent = self.silent_for(number, now)
            if state == "T":
                limit = self.shortest_limit
            else:
                limit = self.limit(number) * (_BUSY_FACTOR if state in "RD" else 1.0)
            if silent > limit:
                found.append(number)
        return found

    def _kind(self, rank: _Rank) -> str | None:
        if rank.phase in RARE:
            return rank.phase
        # Kernels are built and buffers allocated in an attempt's first step.
        return "first step" if self._first_step is None else None

    def _learn(self, rank: _Rank, silence: float) -> None:
        if rank.beats >= 0 and (kind := self._kind(rank)) is not None:
            self.longest[kind] = max(self.longest.get(kind, 0.0), silence)
