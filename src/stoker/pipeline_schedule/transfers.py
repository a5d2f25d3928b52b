"""Which messages pass between ranks, and in which order."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from stoker.pipeline_schedule.schedule import BACKWARD_WEIGHT, FORWARD, Action, Schedule


class Payload(IntEnum):
    """What a message carries: a stage's output, or the gradient of its input."""

    ACTIVATION = 0
    GRADIENT = 1


class Lane(NamedTuple):
    """One-way traffic of one kind between two ranks. Its messages never overtake each other."""

    source: int
    destination: int
    payload: Payload


class Message(NamedTuple):
    """A message is named by who uses it: the stage it goes to, and the micro-batch."""

    stage: int
    micro_batch: int


def transfers(schedule: Schedule) -> dict[Lane, tuple[Message, ...]]:
    """The messages of each lane in the order they are sent; receivers post their receives in this very order.

    Two lanes between the same ranks (activations and gradients, or both ways) are independent and need a tag, group
    or communicator each. A stage's output for a stage on the same rank is no message.
    """
    lanes: dict[Lane, list[Message]] = {}
    for rank, actions in enumerate(schedule.actions):
        for action in actions:
            sent = outgoing(schedule, rank, action)
            if sent is not None:
                lanes.setdefault(sent[0], []).append(sent[1])
    return {lane: tuple(messages) for lane, messages in sorted(lanes.items())}


def outgoing(schedule: Schedule, rank: int, action: Action) -> tuple[Lane, Message] | None:
    """What `rank` sends after `action`, or None where nothing leaves the rank."""
    kind, stage, micro_batch = action
    if kind is BACKWARD_WEIGHT:
        return None
    to, payload = (stage + 1, Payload.ACTIVATION) if kind is FORWARD else (stage - 1, Payload.GRADIENT)
    if not 0 <= to < schedule.stages or schedule.stage_to_rank[to] == rank:
        return None
    return Lane(rank, schedule.stage_to_rank[to], payload), Message(to, micro_batch)
