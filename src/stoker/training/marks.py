"""Marks that each rank leaves in shared memory as it goes along, so that its supervisor sees whether it moves.

A mark costs a microsecond, needs no thread and no message, and can be read when the rank is stopped or dead.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

PHASES = (
    "starting",
    "loading",
    "between phases",
    "data",
    "forward",
    "backward",
    "communication",
    "optimizer",
    "evaluation",
    "checkpoint",
    "finishing",
)
_NUMBERS = {name: number for number, name in enumerate(PHASES)}
_ROW = struct.Struct("<QqqQQQQB")
_BYTES = 64


@dataclass(frozen=True)
class Mark:
    """Where a rank was last seen."""

    beats: int
    """How many marks it has left in this attempt."""
    step: int
    """The last step that it completed; before the first one of this attempt the one it goes on from."""
    stood_at: int | None
    """The step this attempt goes on from; None until that is known."""
    phase: str
    since: float
    """When it left the mark: seconds of the machine's monotonic clock."""
    step_seconds: float
    """How long its last step took."""
    waited_seconds: float
    """How much of that it spent in communication."""
    forwards: int
    """Forward passes of training that it began in this attempt: one for each micro-batch, in a pipeline one for
    each of its stages."""


class Marks:
    """One rank's place on the board. Only this rank writes there."""

    def __init__(self, memory: mmap.mmap, rank: int) -> None:
        self._memory = memory
        self._at = rank * _BYTES
        self._beats = self._step = self._step_ns = self._waited_ns = self._forwards = 0
        self._stood_at = -1
        self.heard: Callable[[int, str], None] | None = None
        """Someone in this process who is told of every mark: how many steps are complete, which phase begins."""

    def phase(self, name: str) -> None:
        """Say that `name` begins."""
        self._beats += 1
        self._forwards += name == "forward"
        now, number = time.monotonic_ns(), _NUMBERS[name]
        times = (now, self._step_ns, self._waited_ns)
        row = (self._beats, self._step, self._stood_at, *times, self._forwards, number)
        _ROW.pack_into(self._memory, self._at, *row)
        if self.heard is not None:
            self.heard(self._step, name)

    def stand_at(self, step: int) -> None:
        """Say after which step this attempt goes on."""
        self._step = self._stood_at = step
        self.phase("loading")

    def step_done(self, seconds: float, waited: float) -> None:
        """Say that one more step is complete, how long it took, and how much of it was waiting for other ranks."""
        self._step += 1
        self._step_ns, self._waited_ns = int(seconds * 1e9), int(waited * 1e9)
        self.phase("between phases")


class Board:
    """The marks of all ranks of one attempt; forked processes share it."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._memory = mmap.mmap(-1, ranks * _BYTES)
        for rank in range(ranks):
            _ROW.pack_into(self._memory, rank * _BYTES, 0, 0, -1, time.monotonic_ns(), 0, 0, 0, 0)

    def marks(self, rank: int) -> Marks:
        """Where `rank` writes."""
        return Marks(self._memory, rank)

    def read(self, rank: int) -> Mark:
        """What `rank` wrote last."""
        row = _ROW.unpack_from(self._memory, rank * _BYTES)
        beats, step, stood, since, step_ns, waited, forwards, phase = row
        stood_at = None if stood < 0 else stood
        return Mark(beats, step, stood_at, PHASES[phase], since / 1e9, step_ns / 1e9, waited / 1e9, forwards)

    def read_all(self) -> list[Mark]:
        """What every rank wrote last, in order of rank."""
        return [self.read(rank) for rank in range(self.ranks)]

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def unwatched() -> Marks:
    """Marks that nobody reads."""
    return Board(1).marks(0)
