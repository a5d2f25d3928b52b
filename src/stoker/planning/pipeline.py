"""What a pipeline's schedule means for the memory and the time of its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from stoker.layout import Layout
from stoker.pipeline_schedule import Kind, Schedule, StageSeconds, build_schedule, simulate

_ROUNDS = 3
"""After so many micro-batches for each stage everything goes on as it did."""


@lru_cache(maxsize=64)
def _schedule(layout: Layout, micro_batches: int) -> Schedule:
    return build_schedule(layout.pipeline_schedule, layout.pp, micro_batches, layout.stages // layout.pp)


def puts_weight_gradients_off(layout: Layout) -> bool:
    """Whether backward passes leave weight gradients for later."""
    actions = _schedule(layout, 1).actions
    return any(kind is Kind.BACKWARD_INPUT for each in actions for kind, _, _ in each)


def most_at_once(layout: Layout, micro_batches: int, at: int, of_stage: Mapping[int, int]) -> int:
    """Most that the passes in flight hold on the rank at place `at`, when each of a stage holds so much."""
    held = most = 0
    for kind, stage, _ in _schedule(layout, min(micro_batches, _ROUNDS * layout.stages)).actions[at]:
        if kind is Kind.FORWARD:
            held += of_stage[stage]
            most = max(most, held)
        elif kind is not Kind.BACKWARD_INPUT:
            held -= of_stage[stage]
    return most


class Makespan(NamedTuple):
    """Seconds of the passes of one step."""

    total: float
    busiest: int
    """The place along `pp` that computes longest."""
    busy: float
    """How long that is."""


def makespan(
    layout: Layout, micro_batches: int, seconds: Sequence[tuple[float, float]], transfer: float
) -> Makespan:
    """Of the schedule of `layout`, for the seconds of each stage's forward and backward passes.

    The two halves of a backward pass are taken to be alike.
    """
    if layout.pp == 1:
        [(forward, backward)] = seconds
        return Makespan(micro_batches * (forward + backward), 0, micro_batches * (forward + backward))
    simulated = min(micro_batches, _ROUNDS * layout.stages)
    costs = [StageSeconds(forward, backward, backward / 2, backward / 2) for forward, backward in seconds]
    timeline = simulate(_schedule(layout, simulated), costs, transfer)
    busiest = max(range(layout.pp), key=lambda place: timeline.busy[place])
    further = timeline.busy[busiest] / simulated * (micro_batches - simulated)
    return Makespan(timeline.makespan + further, busiest, timeline.busy[busiest] + further)
