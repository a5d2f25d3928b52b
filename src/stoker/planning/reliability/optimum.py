"""The best checkpoint interval: Young's and Daly's estimates, and the minimum of the formula itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from stoker.planning.reliability.description import OPTIMAL, RunDescription
from stoker.planning.reliability.formula import goodput_of
from stoker.planning.reliability.process import DAY, Process, process_of

_ROUNDS = 3
_GOLDEN = (math.sqrt(5) - 1) / 2
_CLOSE = 3e-3
_LONGEST = 30 * DAY
_LEAST_GAIN = 1e-7


@dataclass(frozen=True)
class BestInterval:
    """Of one level of copies. Seconds of training between two."""

    where: str
    given: float
    """As it is described, or as it was chosen where that is left open."""
    taken: float
    """In whole steps, and in whole intervals of the nearer level."""
    best: float
    """The minimum of the formula's losses."""
    young: float | None
    """sqrt(2 stall MTBF); none where nothing goes back to this level or a copy costs no stall."""
    daly: float | None
    """Daly's higher-order estimate."""
    goodput: float
    """With the best intervals of all levels."""
    needed: bool
    """Whether any failure goes back to this level."""


@lru_cache(maxsize=64)
def with_intervals(run: RunDescription) -> Process:
    """The process of `run`, its intervals that are to be optimal chosen by the formula."""
    free = [checkpoint.interval_seconds == OPTIMAL for checkpoint in run.checkpoints]
    return process_of(run, _minimise(run, _start(run), free)) if any(free) else process_of(run)


def settled(run: RunDescription) -> RunDescription:
    """`run` with its intervals as numbers."""
    levels = with_intervals(run).levels
    checkpoints = tuple(
        checkpoint.model_copy(update={"interval_seconds": level.interval})
        for checkpoint, level in zip(run.checkpoints, levels, strict=True)
    )
    return run.model_copy(update={"checkpoints": checkpoints})


def best_intervals(run: RunDescription, process: Process) -> list[BestInterval]:
    """For each level of `process`, the run as it is taken, the interval that would lose least."""
    given = [level.interval for level in process.levels]
    if not given:
        return []
    best = process_of(run, _minimise(run, given, [True] * len(given)))
    goodput = goodput_of(best).goodput
    found = []
    for position, (level, chosen) in enumerate(zip(process.levels, best.levels, strict=True)):
        rate = float(process.rates[process.levels_of == position].sum())
        young = daly = None
        if rate > 0 and level.stall > 0:
            young, daly = young_interval(level.stall, 1 / rate), daly_interval(level.stall, 1 / rate)
        wanted = run.checkpoints[position].interval_seconds
        asked = level.interval if isinstance(wanted, str) else wanted
        intervals = (asked, level.interval, chosen.interval)
        found.append(BestInterval(level.where, *intervals, young, daly, goodput, rate > 0))
    return found


def young_interval(stall: float, mtbf: float) -> float:
    """First order (Young 1974)."""
    return math.sqrt(2 * stall * mtbf)


def daly_interval(stall: float, mtbf: float) -> float:
    """Higher order (Daly 2006): MTBF itself where a copy costs twice that or more."""
    if stall >= 2 * mtbf:
        return mtbf
    ratio = stall / (2 * mtbf)
    return math.sqrt(2 * stall * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall


def _start(run: RunDescription) -> list[float]:
    """Intervals as given; one that is to be chosen begins as that of the farther level, which it must fit into."""
    start: list[float] = []
    farther = DAY
    for checkpoint in reversed(run.checkpoints):
        farther = checkpoint.interval_seconds if isinstance(checkpoint.interval_seconds, float) else farther
        start.insert(0, farther)
    return start


def _minimise(run: RunDescription, start: list[float], free: list[bool]) -> list[float]:
    """Level after level, over logarithms of the intervals; a farther level is sought first."""
    chosen = list(start)
    step = process_of(run, start).step
    rounds = _ROUNDS if sum(free) > 1 else 1
    for _ in range(rounds):
        for position in range(len(chosen) - 1, -1, -1):
            if free[position]:
                shortest = max(step, run.checkpoints[position].write_seconds)
                chosen[position] = _best_of_level(run, chosen, position, shortest, free)
    return chosen


def _best_of_level(
    run: RunDescription, chosen: list[float], position: int, shortest: float, free: list[bool]
) -> float:
    def lost(logarithm: float) -> float:
        trial = [*chosen[:position], math.exp(logarithm), *chosen[position + 1 :]]
        for nearer in range(position):  # a nearer level that is still to be chosen must fit into this one
            if free[nearer]:
                trial[nearer] = min(trial[nearer], trial[position])
        outcome = goodput_of(process_of(run, trial))
        return -outcome.goodput + _LEAST_GAIN * logarithm

    longest = _LONGEST if position + 1 == len(chosen) else max(chosen[position + 1], shortest)
    low, high = math.log(shortest), math.log(max(longest, shortest))
    near = math.exp(_narrowed(lost, low, high))
    level = process_of(run, [*chosen[:position], near, *chosen[position + 1 :]]).levels[position]
    unit = level.interval / level.every
    return min(
        [near, *(value for value in (near - unit, near + unit) if math.exp(low) <= value <= math.exp(high))],
        key=lambda value: lost(math.log(value)),
    )


def _narrowed(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function with one: a coarse grid, as whole steps make it uneven, then golden sections."""
    grid = [low + (high - low) * index / 24 for index in range(25)]
    values = [function(point) for point in grid]
    lowest = values.index(min(values))
    low, high = grid[max(0, lowest - 1)], grid[min(24, lowest + 1)]
    while high - low > _CLOSE:
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if function(left) <= function(right):
            high = right
        else:
            low = left
    return (low + high) / 2
