"""What one rank does to be profiled: our own ranges around its steps, and torch's profiler for some of them."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from stoker.durable_files import write_json
from stoker.errors import StokerError
from stoker.parallel import World
from stoker.profiling.collectives import members_of_groups, recorded_collectives
from stoker.profiling.trace import PHASE, STEP, WAIT
from stoker.training.clock import PhaseClock
from stoker.training.clock_offset import measure_clock_offset
from stoker.training.marks import Marks
from stoker.training.trainer import Trainer

_FLIGHTS_KEPT = "20000"
_NOTHING_BELOW = "9"
_SETTLING_STEPS = 2
"""The first steps of a process allocate, and say nothing about what a step costs."""


@dataclass(frozen=True)
class Steps:
    """Which steps are profiled, and which are run before and after."""

    first: int
    last: int
    until: int
    """The last step that is run: those after the profiled ones show what the profiler itself costs."""

    @property
    def count(self) -> int:
        """How many are profiled."""
        return self.last - self.first + 1


class Recorded(Exception):
    """What was to be profiled is on disk, and the run ends here."""


def set_up_environment() -> None:
    """Have torch keep enough collectives in mind, and its profiler's notices to itself. Before torch is loaded."""
    for name, value in (
        ("TORCH_FR_BUFFER_SIZE", _FLIGHTS_KEPT),
        ("KINETO_LOG_LEVEL", _NOTHING_BELOW),
        ("TORCH_CPP_LOG_LEVEL", "ERROR"),
    ):
        os.environ.setdefault(name, value)


class AnnotatedClock(PhaseClock):
    """A clock that also draws phases and waits as ranges: in the trace, and on CUDA by NVTX for Nsight Systems."""

    def __init__(self, device: torch.device, marks: Marks, boundary: Callable[[], None]) -> None:
        """`boundary` is called after each step, when all of it is done."""
        super().__init__(device, marks)
        self._nvtx = device.type == "cuda"
        self._boundary = boundary

    @contextmanager
    def phase(self, name: str, wait: str | None = None) -> Iterator[None]:
        """As the trainer's own, and drawn."""
        with self.drawn(PHASE + name), self.drawn(WAIT + wait if wait else ""), super().phase(name, wait):
            yield

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """As the trainer's own, and drawn."""
        with self.drawn(WAIT + name), super().waiting(name):
            yield

    def read_and_restart(self) -> Any:
        """As the trainer's own; the step is over with it."""
        times = super().read_and_restart()
        self._boundary()
        self.begin()
        return times

    @contextmanager
    def drawn(self, name: str) -> Iterator[None]:
        """Draw the block as a range called `name`, if that is a name."""
        if not name:
            yield
            return
        if self._nvtx:
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        try:
            with record_function(name):
                yield
        finally:
            if self._nvtx:
                torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


@dataclass
class Recording:
    """Watches the steps of one rank, and profiles some of them."""

    steps: Steps
    folder: Path
    """Where the rank leaves its trace and what is known of it."""
    say: Callable[[dict[str, Any]], None] = lambda message: None
    _profiler: profile | None = None
    _step: Any = None
    _began: float = 0.0
    _since: int = 0
    _seconds: dict[int, float] = field(default_factory=dict)
    _clock: dict[str, float] = field(default_factory=dict)
    _done: int = 0
    _started: int = 0

    def attach(self, trainer: Trainer) -> None:
        """Take part in what `trainer` is about to do."""
        self._trainer, self._world = trainer, trainer.step.model.world
        self._done = self._started = trainer.position.step
        clock = AnnotatedClock(self._world.device, trainer.clock.marks, self._step_over)
        trainer.clock = trainer.step.clock = trainer.telemetry.clock = clock
        self._prepare(self._done + 1)

    def _step_over(self) -> None:
        self._seconds[self._done + 1] = time.perf_counter() - self._began
        self._done += 1
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if self._profiler is not None:
            self._profiler.step()
        self.say({"kind": "step", "step": self._done})
        if self._done == self.steps.last:
            self._finish()
        if self._done == self.steps.until:
            self._write_facts()
            self._world.barrier()  # everything is there when the first rank leaves
            raise Recorded
        self._prepare(self._done + 1)

    def _prepare(self, following: int) -> None:
        # The profiler itself warms up in the step before, where there is one.
        if following == max(self.steps.first - 1, self._started + 1):
            self._begin(self.steps.first - following)
        if self.steps.first <= following <= self.steps.last:
            self._since = self._since or time.time_ns()
            self._step = record_function(f"{STEP}{following}")
            self._step.__enter__()
        self._began = time.perf_counter()

    def _begin(self, warm_up: int) -> None:
        cuda = self._world.device.type == "cuda"
        offset = measure_clock_offset(self._world)
        # Less than it is known by is none: ranks of one machine have one clock.
        ahead = offset.ahead_seconds if abs(offset.ahead_seconds) > offset.uncertain_seconds else 0.0
        self._clock = {"ahead": ahead * 1e9, "uncertain": offset.uncertain_seconds * 1e9}
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        self._profiler = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=warm_up, active=self.steps.count, repeat=1),
            record_shapes=True,
            profile_memory=True,
        )
        self._profiler.start()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        self._world.barrier()

    def _finish(self) -> None:
        assert self._profiler is not None
        if self._world.device.type == "cuda":
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        self._collectives = recorded_collectives() if self._world.layout.world_size > 1 else "{}"
        self._groups = members_of_groups()
        self._memory = memory_facts(self._trainer, self._world)
        self._profiler.stop()
        trace = trace_file(self.folder, self._world.rank)
        self._profiler.export_chrome_trace(str(trace))
        require_whole(trace)
        self._profiler = None
        self._world.barrier()

    def _write_facts(self) -> None:
        settled = {n: s for n, s in self._seconds.items() if n > self._started + _SETTLING_STEPS}
        # The steps next to the profiled ones have part of starting and ending the profiler in them.
        plain = [s for n, s in settled.items() if not self.steps.first - 1 <= n <= self.steps.last + 1]
        profiled = [s for n, s in self._seconds.items() if self.steps.first <= n <= self.steps.last]
        facts = {
            "rank": self._world.rank,
            "since": self._since,
            "clock": self._clock,
            "collectives": self._collectives,
            "groups": self._groups,
            "memory": self._memory,
            "plain_seconds": sorted(plain),
            "profiled_seconds": statistics.median(profiled),
        }
        write_json(facts_file(self.folder, self._world.rank), facts)


def trace_file(folder: Path, rank: int) -> Path:
    """Where rank `rank` leaves its trace."""
    return folder / f"rank-{rank:05d}.trace.json"


def facts_file(folder: Path, rank: int) -> Path:
    """Where rank `rank` leaves what is known of its trace."""
    return folder / f"rank-{rank:05d}.json"


def require_whole(trace: Path) -> None:
    """Raise `StokerError` for a trace that ends in the middle: torch's profiler says nothing of a full disk."""
    try:
        with open(trace, "rb") as file:
            file.seek(max(0, trace.stat().st_size - 16))
            whole = file.read().rstrip().endswith(b"}")
    except OSError:
        whole = False
    if not whole:
        raise StokerError(
            f"could not write {trace}: the disk is full, or the folder is gone; free some space, or choose another "
            "folder with --output, and profile again"
        )


def read_facts(folder: Path, rank: int) -> dict[str, Any]:
    """What rank `rank` left. Raises `OSError` where it left nothing."""
    facts: dict[str, Any] = json.loads(facts_file(folder, rank).read_bytes())
    return facts


def memory_facts(trainer: Trainer, world: World) -> dict[str, int]:
    """Bytes that this rank's state takes, and on CUDA what the allocator says."""
    held = [one.parameter for one in trainer.step.model.held if one.is_parameter]
    state = [value for one in trainer.step.optimizer.state.values() for value in one.values()]
    facts = {
        "parameters": sum(_local_bytes(one) for one in held),
        "optimizer": sum(_local_bytes(value) for value in state if isinstance(value, torch.Tensor)),
    }
    if world.device.type == "cuda":
        told = torch.cuda.memory_stats(world.device)
        facts |= {
            "peak_allocated": told["allocated_bytes.all.peak"],
            "peak_reserved": told["reserved_bytes.all.peak"],
            "peak_split": told.get("inactive_split_bytes.all.peak", 0),
            "retries": told.get("num_alloc_retries", 0),
        }
    return facts


def _local_bytes(tensor: torch.Tensor) -> int:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.numel() * local.element_size())
