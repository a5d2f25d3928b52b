"""What a machine does wrong: computes slowly, sums late, keeps memory."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch
import torch.distributed as dist

from stoker.recovery.faults import Fault
from stoker.training.trainer import Trainer

_COMPUTING = ("forward", "backward", "optimizer")
_THROTTLED_OVER = 30
"""Steps over which a machine that gets too hot becomes slower."""
_LEAKED = 0.005
_PACES, _FEW = 32, 3


class Pace:
    """How long a step usually takes on this rank, and how often it sums something with others."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_PACES)
        self._began: float | None = None
        self._sums: deque[int] = deque(maxlen=_PACES)
        self._summed = 0

    def begin(self, disturbed: bool) -> None:
        """A step begins, which is no measure where it is `disturbed`, unless there is hardly any other."""
        now = time.monotonic()
        if self._began is not None:
            self._seconds.append(now - self._began)
            self._sums.append(self._summed)
        self._began = None if disturbed and len(self._seconds) >= _FEW else now
        self._summed = 0

    def summed(self) -> None:
        """This rank sums something with others."""
        self._summed += 1

    @property
    def step(self) -> float:
        """Seconds of the usual step; 0 before the first."""
        return statistics.median(self._seconds) if self._seconds else 0.0

    @property
    def sums(self) -> float:
        """How often a step sums; at least once."""
        return max(1.0, statistics.median(self._sums)) if self._sums else 1.0


def compute_slowly(trainer: Trainer, faults: Sequence[Fault]) -> None:
    """Have what this rank computes take longer while `faults` last, within the phases that are timed."""
    clock, device = trainer.clock, trainer.step.model.world.device
    usual: Callable[..., Any] = clock.phase

    @contextmanager
    def phase(name: str, *others: Any, **options: Any) -> Iterator[None]:
        factor = _slowness(faults, trainer.position.step + 1) if name in _COMPUTING else 0.0
        with usual(name, *others, **options):
            if not factor:
                yield
                return
            _await(device)
            began = time.perf_counter()
            yield
            _await(device)
            time.sleep(factor * (time.perf_counter() - began))

    clock.phase = phase  # type: ignore[method-assign]


def _slowness(faults: Sequence[Fault], step: int) -> float:
    """How much longer everything takes at `step`, of what it takes."""
    found = 0.0
    for fault in faults:
        if fault.covers(step):
            reached = 1.0 if fault.kind == "slow_rank" else min(1.0, (step - fault.step + 1) / _THROTTLED_OVER)
            found += fault.option("strength") * reached
    return found


def _await(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def sum_late(trainer: Trainer, faults: Sequence[Fault], pace: Pace) -> None:
    """Have what ranks sum together take longer while `faults` last: this rank's part of it arrives late."""
    usual: Callable[..., Any] = dist.all_reduce
    dice = random.Random(trainer.recipe.seed)

    def late(*given: Any, **options: Any) -> Any:
        if options.get("async_op"):
            return usual(*given, **options)
        pace.summed()
        for fault in faults:
            if fault.covers(trainer.position.step + 1):
                mean = fault.option("strength") * pace.step / pace.sums
                # Times between rare events: most are short, a few are long.
                time.sleep(mean if fault.kind == "slow_network" else -mean * math.log(1.0 - dice.random()))
        return usual(*given, **options)

    dist.all_reduce = late


class Leak:
    """Memory that nobody gives back."""

    def __init__(self) -> None:
        self._had: int | None = None
        self._kept: list[bytearray] = []

    def grow(self, strength: float) -> None:
        """Keep a little more."""
        if self._had is None:
            self._had = psutil.Process().memory_info().rss
        size = int(_LEAKED * strength * self._had)
        self._kept.append(bytearray(b"\1") * size)  # written, or it would take no memory
