"""What one rank does in a step of so many micro-batches: its part of a schedule, ready to be carried out."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.layout import Layout
from stoker.pipeline_schedule import (
    Action,
    Kind,
    Lane,
    Message,
    Schedule,
    build_schedule,
    receives_to_post,
    transfers,
)

_FEWEST_BETWEEN = 2
"""Other actions between a forward pass and its backward pass that make it worth moving activations."""

Pass = tuple[int, int]
"""A stage and a micro-batch."""


@dataclass(frozen=True)
class Program:
    """The actions of one rank, and what follows from them."""

    schedule: Schedule
    actions: tuple[Action, ...]
    receives: dict[Lane, tuple[Message, ...]]
    """What comes in, by lane, in the order in which it is sent."""
    ahead: int
    """Receives of each lane that are posted at a time."""
    completes: frozenset[int]
    """Places of the actions after which the gradients of their stage are complete."""
    rests: frozenset[Pass]
    """Whose activations are not needed for a while after their forward pass."""
    fetches: dict[int, Pass]
    """Whose activations are needed by the action after this one, by place of the action."""
    puts_off: frozenset[int]
    """The stages of this rank that leave weight gradients for later, after some backward passes or all."""
    splits: bool
    """Whether some backward pass, on whatever rank, leaves weight gradients for later."""


def program(layout: Layout, at: int, micro_batches: int) -> Program:
    """The program of the rank at place `at` along `pp`."""
    schedule = build_schedule(layout.pipeline_schedule, layout.pp, micro_batches, layout.stages // layout.pp)
    actions = schedule.actions[at]
    rests, fetches = _rests(actions)
    return Program(
        schedule=schedule,
        actions=actions,
        receives={lane: messages for lane, messages in transfers(schedule).items() if lane.destination == at},
        ahead=receives_to_post(schedule),
        completes=frozenset({stage: place for place, (_, stage, _) in enumerate(actions)}.values()),
        rests=rests,
        fetches=fetches,
        puts_off=frozenset(stage for kind, stage, _ in actions if kind is Kind.BACKWARD_WEIGHT),
        splits=any(kind is Kind.BACKWARD_INPUT for each in schedule.actions for kind, _, _ in each),
    )


def _rests(actions: tuple[Action, ...]) -> tuple[frozenset[Pass], dict[int, Pass]]:
    forward: dict[Pass, int] = {}
    fetches: dict[int, Pass] = {}
    for place, (kind, stage, micro_batch) in enumerate(actions):
        if kind is Kind.FORWARD:
            forward[stage, micro_batch] = place
        elif kind is not Kind.BACKWARD_WEIGHT and place - forward[stage, micro_batch] > _FEWEST_BETWEEN:
            fetches[place - 1] = stage, micro_batch
    return frozenset(fetches.values()), fetches
