"""`check` finds what is wrong with a schedule and names the first wrong action."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stoker.errors import BadInput
from stoker.pipeline_schedule import (
    Action,
    Kind,
    Schedule,
    ScheduleError,
    ScheduleName,
    build_schedule,
    check,
    receives_to_post,
    transfers,
)
from tests.pipeline_schedule.cases import CASES, played


def changed(schedule: Schedule, rank: int, actions: list[Action]) -> Schedule:
    programs = list(schedule.actions)
    programs[rank] = tuple(actions)
    return replace(schedule, actions=tuple(programs))


@pytest.mark.parametrize(("name", "v"), CASES)
def test_missing_and_doubled_actions_are_named(name: ScheduleName, v: int) -> None:
    schedule = build_schedule(name, 3, 5, v)
    for rank in range(3):
        actions = list(schedule.actions[rank])
        for position, action in enumerate(actions):
            last_of_its_pair = action.kind in (Kind.BACKWARD, Kind.BACKWARD_WEIGHT)
            missing = f"{action} is missing" if last_of_its_pair else f"stage {action.stage}, micro-batch"
            with pytest.raises(ScheduleError, match=missing):
                check(changed(schedule, rank, actions[:position] + actions[position + 1 :]))
            with pytest.raises(ScheduleError, match=f"action {position + 1}: {action} cannot come here"):
                check(changed(schedule, rank, [*actions[: position + 1], *actions[position:]]))


@pytest.mark.parametrize(("name", "v"), CASES)
def test_a_swap_is_found_or_harmless(name: ScheduleName, v: int) -> None:
    """A swap that breaks an order is found by name; whatever passes the check can also be played to its end."""
    schedule, draw, found = build_schedule(name, 4, 6, v), random.Random(7), 0
    for _ in range(300):
        rank = draw.randrange(4)
        actions = list(schedule.actions[rank])
        a, b = draw.sample(range(len(actions)), 2)
        actions[a], actions[b] = actions[b], actions[a]
        swapped = changed(schedule, rank, actions)
        try:
            check(swapped)
        except ScheduleError as error:
            found += "action" in str(error)
        else:
            assert played(swapped).makespan > 0
    assert found > 150


def test_a_backward_before_its_forward_is_named() -> None:
    schedule = build_schedule("1f1b", 2, 2)
    actions = list(schedule.actions[1])
    actions[0], actions[1] = actions[1], actions[0]
    said = "rank 1, action 0: BACKWARD of stage 1, micro-batch 0 cannot come here.*has had no FORWARD"
    with pytest.raises(ScheduleError, match=said):
        check(changed(schedule, 1, actions))


def test_a_weight_half_before_its_input_half_is_named() -> None:
    schedule = build_schedule("zbv", 1, 1)
    actions = sorted(schedule.actions[0], key=lambda action: (action.stage, action.kind))
    forward, first_half, second_half = actions[:3]
    with pytest.raises(ScheduleError, match="BACKWARD_WEIGHT of stage 0, micro-batch 0 cannot come here"):
        check(changed(schedule, 0, [forward, second_half, first_half]))


@pytest.mark.parametrize(
    "action", [Action(Kind.FORWARD, 0, 0), Action(Kind.FORWARD, 1, 2), Action(Kind.FORWARD, 1, -1)]
)
def test_work_of_others_is_named(action: Action) -> None:
    schedule = build_schedule("1f1b", 2, 2)
    with pytest.raises(ScheduleError, match=f"rank 1, action 0: {action} is not its work"):
        check(changed(schedule, 1, [action, *schedule.actions[1]]))


def test_messages_used_in_another_order_than_sent_are_named() -> None:
    schedule = build_schedule("gpipe", 2, 3)
    actions = list(schedule.actions[1])
    actions[0], actions[1] = actions[1], actions[0]
    with pytest.raises(ScheduleError, match="rank 1, action 1: FORWARD of stage 1, micro-batch 0 uses a message"):
        check(changed(schedule, 1, actions))


@pytest.mark.parametrize(("name", "v"), CASES)
def test_a_wrong_order_of_receives_is_named(name: ScheduleName, v: int) -> None:
    schedule = build_schedule(name, 3, 4, v)
    right = transfers(schedule)
    for lane, messages in right.items():
        for position in range(len(messages) - 1):
            wrong = list(messages)
            wrong[position : position + 2] = wrong[position + 1], wrong[position]
            with pytest.raises(ScheduleError, match=f"receive {position} of the {lane.payload.name} lane"):
                check(schedule, receives={**right, lane: wrong})
        with pytest.raises(ScheduleError, match="but nothing is expected"):
            check(schedule, receives={**right, lane: messages[:-1]})
        with pytest.raises(ScheduleError, match="nothing is sent"):
            check(schedule, receives={**right, lane: (*messages, messages[0])})


def test_a_deadlock_of_any_kind_of_send_is_found() -> None:
    """Backward 1 waits for stage 2, whose forward comes after backward 0, which waits for backward 1."""
    forward, backward = Kind.FORWARD, Kind.BACKWARD
    programs = (
        tuple(Action(*x) for x in ((forward, 0, 0), (backward, 0, 0), (forward, 2, 0), (backward, 2, 0))),
        tuple(Action(*x) for x in ((forward, 1, 0), (backward, 1, 0), (forward, 3, 0), (backward, 3, 0))),
    )
    schedule = Schedule("broken", 2, 2, 1, (0, 1, 0, 1), programs)
    with pytest.raises(ScheduleError, match="even with buffered sends: rank 0 waits before action 1, BACKWARD of"):
        check(schedule)
    with pytest.raises(ScheduleError, match="waits for ever before BACKWARD of stage 0"):
        played(schedule)


def test_a_deadlock_of_rendezvous_sends_alone_is_found() -> None:
    """Rank 0 sends all its activations before it takes a gradient, rank 1 sends gradients as soon as it can."""
    eager = build_schedule("1f1b", 2, 6).actions[1]
    schedule = changed(build_schedule("gpipe", 2, 6), 1, list(eager))
    assert played(schedule).makespan > 0
    with pytest.raises(ScheduleError, match="deadlock with rendezvous sends: rank 0 waits before action 6"):
        check(schedule)
    with pytest.raises(ScheduleError, match="deadlock"):
        receives_to_post(schedule)


def test_the_error_is_bad_input_and_a_value_error() -> None:
    assert issubclass(ScheduleError, BadInput)
    assert issubclass(ScheduleError, ValueError)
