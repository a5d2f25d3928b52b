"""From copy to copy: how much of the work survives, when each kind of failure goes back to a level of its own.

A passage is the uptime in which a run gets from one copy to the next, failures of nearer levels included. Its
Laplace transform at rate s is the chance that no failure of rate s comes meanwhile, so levels nest. See
docs/simulate.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.planning.reliability.injected import cycle_of
from stoker.planning.reliability.process import Process

_LEAST = 1e-300
_NEVER = math.log(_LEAST)
Log = Callable[[float], float]
"""Logarithm of a passage's Laplace transform."""


@dataclass(frozen=True)
class Stage:
    """One level of copies, or the steps themselves where the others go on without a failed group."""

    interval: float
    """Training between copies, seconds."""
    every: int
    """Intervals of the stage before in one of this."""
    stall: float
    late: float
    """Uptime from the end of the stall until the copy can be restored."""
    rate: float
    """Failures, with those that follow in their restarts, that go back to this stage; a second of uptime."""


@dataclass(frozen=True)
class Passages:
    """All stages, from the nearest."""

    stages: tuple[Stage, ...]
    productive: float
    """Share of uptime that is no stall."""
    waiting_for_step_end: float
    """Seconds, per second of uptime, in which groups finish a step that is already lost."""
    committed: float
    """Share of steps begun that no leaving group spoils."""
    injected: float | None = None
    """Share of uptime that is kept where failures come at intervals of their own."""


def passages_of(process: Process, rates: NDArray[np.float64], groups: float) -> Passages:
    """The stages of `process` when kinds fail at `rates` and a share `groups` of its groups takes part."""
    effective = _by_level(process, rates)
    step = process.step / (groups if process.description.replicas.batch == "kept" else 1.0)
    stages = [Stage(step, 1, 0.0, 0.0, float(effective[0]))] if process.per_step else []
    for level, rate in zip(process.levels, effective[1:].tolist(), strict=True):
        every = level.every if stages else 1
        if process.per_step and len(stages) == 1:
            every = max(1, round(level.interval / step))
        inner = stages[-1].interval * every if stages else level.interval
        stages.append(Stage(inner, every, level.stall, level.write - level.stall, rate))
    stalled = sum(stage.stall / stage.interval for stage in stages)
    productive = 1 / (1 + stalled)
    leaving = float(effective[0]) if process.per_step else 0.0
    if leaving == 0:
        return Passages(tuple(stages), productive, 0.0, 1.0)
    if process.description.failures.spacing != "random":
        cycle = cycle_of(process, step)
        return Passages(tuple(stages), 1.0, cycle.step_end, cycle.committed, cycle.kept)
    total = float(effective.sum())
    spoiled = -math.expm1(-total * step)
    into_step = 1 / total - step * (1 - spoiled) / spoiled  # from a step's begin to the failure in it
    return Passages(tuple(stages), productive, leaving * (step - into_step), 1 - spoiled)


def _by_level(process: Process, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Failure chains a second that begin in uptime, by the farthest level that any failure of one goes back to."""
    total, farthest = float(rates.sum()), len(process.levels)
    result = np.zeros(farthest + 1)
    if total == 0:
        return result
    below = 0.0
    for level in range(farthest + 1):
        ends, goes_on = 0.0, 0.0
        for kind, rate in enumerate(rates.tolist()):
            own = int(process.levels_of[kind]) + 1
            if own <= level:
                succeeds = math.exp(-total * process.attempt(kind, own - 1))
                ends += rate / total * succeeds
                goes_on += rate / total * (1 - succeeds)
        until_here = ends / max(1 - goes_on, _LEAST) if level < farthest else 1.0
        if any(process.levels_of[kind] + 1 == level for kind in np.flatnonzero(rates)):
            result[level] = total * max(0.0, until_here - below)
        below = until_here
    return result


def kept_share(passages: Passages) -> float:
    """Share of uptime whose work is kept."""
    if passages.injected is not None:
        return passages.injected
    stages = passages.stages
    last = max((position for position, stage in enumerate(stages) if stage.rate > 0), default=-1)
    if last < 0:
        return passages.productive
    inner: Log = lambda s: -s * stages[0].interval  # noqa: E731 - one of a chain of functions
    for position in range(last + 1):
        whole = _interval(stages[position], inner)
        if position == last:
            kept = _kept_by_last(stages[position], whole)
        inner = _passage(stages[position], whole)
    for stage in stages[last + 1 :]:  # copies that nothing goes back to only cost their stalls
        kept /= 1 + stage.stall * kept / stage.interval
    return kept


def _interval(stage: Stage, inner: Log) -> Log:
    return lambda s: stage.every * inner(s) - s * stage.stall


def _kept_by_last(stage: Stage, whole: Log) -> float:
    survives = whole(stage.rate)
    if survives < -700:
        return 0.0
    work = stage.interval * math.exp(-stage.rate * stage.late + survives) / -math.expm1(survives)
    return stage.rate * work


def _passage(stage: Stage, whole: Log) -> Log:
    """With failures at the stage's own rate: steadily from one copy that can be restored to the next."""
    if stage.rate == 0:
        return whole

    def log(s: float) -> float:
        both = stage.rate + s
        inside = whole(both)
        fresh = math.exp(inside - both * stage.late)
        gone = math.expm1(inside) * s / (s + stage.rate * fresh)
        return math.log1p(gone) if gone > -1 else _NEVER

    return log
