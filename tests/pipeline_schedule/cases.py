"""The schedules that tests go through, each with the stages per rank it is tried with."""

from __future__ import annotations

from stoker.pipeline_schedule import Schedule, ScheduleName, StageSeconds, Timeline, build_schedule, simulate

CASES: list[tuple[ScheduleName, int]] = [
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved_1f1b", 2),
    ("interleaved_1f1b", 3),
    ("interleaved_1f1b", 4),
    ("interleaved_zero_bubble", 1),
    ("interleaved_zero_bubble", 2),
    ("interleaved_zero_bubble", 3),
    ("interleaved_zero_bubble", 4),
    ("zbv", 2),
    ("dualpipe_v", 2),
]


def simulated(name: ScheduleName, p: int, m: int, v: int | None = None, unit: float = 1.0) -> Timeline:
    """With F = I = W = unit, B = 2·unit, and messages that take no time."""
    return played(build_schedule(name, p, m, v), unit)


def played(schedule: Schedule, unit: float = 1.0) -> Timeline:
    return simulate(schedule, [StageSeconds(unit, 2 * unit, unit, unit)] * schedule.stages)
