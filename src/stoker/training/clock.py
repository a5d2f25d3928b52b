"""Where the time of one step goes, by phase, without stopping the device to ask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stoker.training.marks import Marks, unwatched

PHASES = ("data", "forward", "backward", "communication", "optimizer", "evaluation", "checkpoint")


class PhaseClock:
    """Adds up the seconds of each phase of a step.

    On CUDA a phase is bracketed by events on the stream and read when the step is over;
    elsewhere by the host's clock. Whoever watches the rank sees each phase begin and end by its marks.
    """

    def __init__(self, device: torch.device, marks: Marks | None = None) -> None:
        self.marks = marks or unwatched()
        self._on_device = device.type == "cuda"
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._started = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the block's time as `name`."""
        self.marks.phase(name)
        if self._on_device:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            yield
            end.record()
            self._events.append((name, begin, end))
        else:
            begun = time.perf_counter()
            yield
            self._seconds[name] += time.perf_counter() - begun
        self.marks.phase("between phases")

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` measured elsewhere as `name`."""
        self._seconds[name] += seconds

    def read_and_restart(self) -> dict[str, float]:
        """Seconds by phase since the last call, and `total`; what no phase covers is in `total` alone."""
        if self._on_device:
            torch.cuda.synchronize()
            for name, begin, end in self._events:
                self._seconds[name] += begin.elapsed_time(end) / 1e3
            self._events.clear()
        now = time.perf_counter()
        seconds = {**self._seconds, "total": now - self._started}
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._started = now
        self.marks.step_done(seconds["total"], seconds["communication"])
        return seconds
