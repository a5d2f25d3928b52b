"""Proof that a schedule does everything once, in a possible order, and cannot hang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from stoker.errors import BadInput
from stoker.pipeline_schedule.dependencies import Place, producers
from stoker.pipeline_schedule.schedule import BACKWARD, BACKWARD_WEIGHT, FORWARD, Schedule
from stoker.pipeline_schedule.transfers import Lane, Message, transfers

# What has been done with a micro-batch in a stage.
_NEW, _FORWARDED, _HALF, _DONE = range(4)
_BEFORE = (_NEW, _FORWARDED, _FORWARDED, _HALF)  # where it must stand before an action of each `Kind`
_AFTER = (_FORWARDED, _DONE, _HALF, _DONE)
_STATE_IN_WORDS = (
    "has had no FORWARD",
    "has had its FORWARD and no backward",
    "has had its BACKWARD_INPUT",
    "has been done already",
)
_NEXT = (FORWARD, BACKWARD, BACKWARD_WEIGHT)


class ScheduleError(BadInput, ValueError):
    """A schedule that cannot be run; the message names the first wrong action."""


def check(schedule: Schedule, receives: Mapping[Lane, Sequence[Message]] | None = None) -> None:
    """Raise `ScheduleError`, naming the first wrong action, unless `schedule` is complete and free of deadlock.

    Proved are: each rank does every action of its own stages once (a backward whole or in two halves) and in
    a possible order; the messages of each lane are used in the order in which they are sent; `receives`, the order
    in which receivers post (`transfers` where left out), is that order too; and nobody waits for ever, neither with
    buffered sends nor with a strict rendezvous and p receives posted on each lane (see `receives_to_post`).
    """
    for rank in range(schedule.ranks):
        _check_program(schedule, rank)
    if receives is not None:
        _check_receives(transfers(schedule), receives)
    needed = producers(schedule)
    at = _progress(schedule, needed, _taken_when(schedule, needed, schedule.ranks))
    if at is not None:
        buffered = _progress(schedule, needed, _taken_at_once(needed))
        how = "with rendezvous sends" if buffered is None else "even with buffered sends"
        raise ScheduleError(f"deadlock {how}: {_in_words(schedule, buffered or at)}")


def receives_to_post(schedule: Schedule) -> int:
    """How many receives of a lane its receiver must keep posted for a strict rendezvous not to deadlock.

    Strict: after an action a rank goes on only when the receive for what it has just sent is posted. A receive
    counts as posted until the action that uses its message has ended; then the next one of the lane is posted.
    Raises `ScheduleError` where p do not suffice.
    """
    needed = producers(schedule)
    for posted in range(1, schedule.ranks + 1):
        if _progress(schedule, needed, _taken_when(schedule, needed, posted)) is None:
            return posted
    check(schedule)
    raise ScheduleError("a schedule that passes its check needs at most p receives")


def _check_program(schedule: Schedule, rank: int) -> None:
    actions, micro_batches = schedule.actions[rank], schedule.micro_batches
    states = {stage: dict.fromkeys(range(micro_batches), _NEW) for stage in schedule.stages_of(rank)}
    for position, (kind, stage, micro_batch) in enumerate(actions):
        if stage not in states or micro_batch not in states[stage]:
            raise ScheduleError(
                f"rank {rank}, action {position}: {actions[position]} is not its work; it has stages "
                f"{', '.join(map(str, states))} and micro-batches 0 to {micro_batches - 1}"
            )
        state = states[stage]
        if state[micro_batch] != _BEFORE[kind]:
            raise ScheduleError(
                f"rank {rank}, action {position}: {actions[position]} cannot come here, for in that stage the "
                f"micro-batch {_STATE_IN_WORDS[state[micro_batch]]}"
            )
        state[micro_batch] = _AFTER[kind]
    for stage, state in states.items():
        for micro_batch, reached in state.items():
            if reached != _DONE:
                missing = f"{_NEXT[reached].name} of stage {stage}, micro-batch {micro_batch}"
                raise ScheduleError(f"rank {rank}: {missing} is missing")


def _check_receives(sent: Mapping[Lane, Sequence[Message]], receives: Mapping[Lane, Sequence[Message]]) -> None:
    for lane in sorted(sent.keys() | receives.keys()):
        pairs = zip_longest(sent.get(lane, ()), receives.get(lane, ()))
        for position, (message, receive) in enumerate(pairs):
            if message != receive:
                raise ScheduleError(
                    f"receive {position} of the {lane.payload.name} lane from rank {lane.source} to rank "
                    f"{lane.destination}: {_name(message)} is sent, but {_name(receive)} is expected"
                )


def _name(message: Message | None) -> str:
    return "nothing" if message is None else f"micro-batch {message.micro_batch} for stage {message.stage}"


def _taken_at_once(needed: list[list[Place]]) -> list[list[Place]]:
    return [[(rank, 0)] * (len(places) + 1) for rank, places in enumerate(needed)]


def _taken_when(schedule: Schedule, needed: list[list[Place]], receives_posted: int) -> list[list[Place]]:
    """For each rank and action, how far which receiver must have come before the rank may start that action.

    That is where the receive is posted for what the rank sent after the action before.
    """
    taken = _taken_at_once(needed)
    for rank, places in enumerate(needed):
        actions = schedule.actions[rank]
        used: dict[tuple[int, bool], list[int]] = {}  # of each lane to this rank, where its messages are used
        last_made: dict[tuple[int, bool], int] = {}
        for position, (source, made) in enumerate(places):
            if source == rank:
                continue
            lane = (source, actions[position].kind is FORWARD)
            if made < last_made.get(lane, 0):
                raise ScheduleError(
                    f"rank {rank}, action {position}: {actions[position]} uses a message that rank {source} sends "
                    "before one that was used earlier; messages of one lane must be used in the order they are sent"
                )
            last_made[lane] = made
            uses = used.setdefault(lane, [])
            if len(uses) >= receives_posted:
                taken[source][made + 1] = (rank, uses[-receives_posted] + 1)
            uses.append(position)
    return taken


def _progress(schedule: Schedule, needed: list[list[Place]], taken: list[list[Place]]) -> list[int] | None:
    """Play the schedule without a clock; where each rank hangs, or None if all come to their end."""
    done = [0] * schedule.ranks
    moved = True
    while moved:
        moved = False
        for rank, places in enumerate(needed):
            sends, position = taken[rank], done[rank]
            while position < len(places):
                source, made = places[position]
                receiver, posted = sends[position]
                if made >= done[source] or posted > done[receiver]:
                    break
                position += 1
                done[rank] = position
                moved = True
    return None if done == list(map(len, needed)) else done


def _in_words(schedule: Schedule, at: list[int]) -> str:
    hanging = [
        (position, f"rank {rank} waits before action {position}, {schedule.actions[rank][position]}")
        for rank, position in enumerate(at)
        if position < len(schedule.actions[rank])
    ]
    return "; ".join(text for _, text in sorted(hanging)[:4])
