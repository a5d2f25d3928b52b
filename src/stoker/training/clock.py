"""Where the time of one step goes, by phase, without stopping the device to ask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from stoker.training.marks import Marks, unwatched

PHASES = ("data", "forward", "backward", "communication", "optimizer", "evaluation", "checkpoint")
WORK = ("forward", "backward", "optimizer")
"""The phases in which a rank works by itself, but for what it waits for in the middle of them."""


class Span(NamedTuple):
    """A stretch of time of a step."""

    name: str
    begun: float
    """Seconds after the step began."""
    seconds: float


@dataclass(frozen=True)
class StepTimes:
    """Where the time of one step went on this rank."""

    began: float
    """Unix time, by this machine's own clock."""
    seconds: dict[str, float]
    """By phase, and `total`; what no phase covers is in `total` alone."""
    spans: tuple[Span, ...]
    """Each phase as it came, in order."""
    arrived: dict[str, float]
    """Seconds after the step began at which this rank first came to wait for others, by what it waited for."""
    waited: dict[str, float]
    """Seconds that it waited."""
    waited_at_work: float
    """Of those, the ones in the middle of a phase of `WORK`."""

    def without(self, *phases: str) -> float:
        """Seconds of the whole step but for those of some phases."""
        return self.seconds["total"] - sum(self.seconds[name] for name in phases)

    @property
    def work(self) -> float:
        """Seconds of forward, backward and optimizer without what was waited for in them."""
        return max(0.0, sum(self.seconds[name] for name in WORK) - self.waited_at_work)


@dataclass
class _Spans:
    """What is timed of one step: on CUDA pairs of events, elsewhere of host times."""

    phases: list[tuple[str, Any, Any]] = field(default_factory=list)
    waits: list[tuple[str, Any, Any, bool]] = field(default_factory=list)
    """The last says whether it was at work."""
    added: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))


class PhaseClock:
    """Times each phase of a step, and what is waited for in it.

    On CUDA both ends are events on the stream, read when the step is over; elsewhere times of the host's clock.
    Whoever watches the rank sees each phase begin and end by its marks.
    """

    def __init__(self, device: torch.device, marks: Marks | None = None) -> None:
        self.marks = marks or unwatched()
        self._on_device = device.type == "cuda"
        self._at_work = False
        self.begin()

    def begin(self) -> None:
        """What comes now is the first step's; what was before it is not timed."""
        self._spans, self._started, self._began = _Spans(), time.perf_counter(), time.time()
        self._origin = self._now()

    @contextmanager
    def phase(self, name: str, wait: str | None = None) -> Iterator[None]:
        """Count the block's time as `name`. `wait` is what this rank does nothing but wait for in it."""
        self.marks.phase(name)
        self._at_work = name in WORK
        begin = self._now()
        yield
        end = self._now()
        self._at_work = False
        self._spans.phases.append((name, begin, end))
        if wait is not None:
            self._spans.waits.append((wait, begin, end, False))
        self.marks.phase("between phases")

    @contextmanager
    def aside(self, name: str) -> Iterator[None]:
        """Count the block's time as `name`, whatever phases and waits it has: it is not of the step."""
        begin, kept = self._now(), self._spans
        self._spans = _Spans()
        try:
            yield
        finally:
            self._spans = kept
            kept.phases.append((name, begin, self._now()))

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Count the block's time as waiting for `name`, in the middle of whatever phase it is."""
        begin = self._now()
        yield
        self._spans.waits.append((name, begin, self._now(), self._at_work))

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` measured elsewhere as `name`."""
        self._spans.added[name] += seconds

    def read_and_restart(self) -> StepTimes:
        """The times since the last call; the next step begins now."""
        if self._on_device:
            torch.cuda.synchronize()
        spans, origin = self._spans, self._origin
        total, began = time.perf_counter() - self._started, self._began
        self.begin()
        phases = tuple(
            Span(name, _between(origin, begin), _between(begin, end)) for name, begin, end in spans.phases
        )
        seconds = spans.added
        for span in phases:
            seconds[span.name] += span.seconds
        arrived: dict[str, float] = {}
        waited: dict[str, float] = {}
        at_work = 0.0
        for name, begin, end, is_at_work in spans.waits:
            arrived.setdefault(name, _between(origin, begin))
            waited[name] = waited.get(name, 0.0) + (lasted := _between(begin, end))
            at_work += lasted if is_at_work else 0.0
        self.marks.step_done(total, seconds["communication"])
        return StepTimes(began, {**seconds, "total": total}, phases, arrived, waited, at_work)

    def _now(self) -> Any:
        if not self._on_device:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _between(begin: Any, end: Any) -> float:
    """Seconds from one to the other."""
    if isinstance(begin, float):
        return float(end - begin)
    return float(begin.elapsed_time(end)) / 1e3
