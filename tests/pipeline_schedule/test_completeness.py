"""Every schedule does all work once and cannot hang, for any number of ranks and micro-batches."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stoker.errors import BadInput
from stoker.pipeline_schedule import (
    SCHEDULE_NAMES,
    Payload,
    ScheduleName,
    build_schedule,
    check,
    receives_to_post,
    transfers,
)
from tests.pipeline_schedule.cases import CASES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "v"), [pytest.param(name, v, marks=pytest.mark.slow if v > 2 else []) for name, v in CASES]
)
def test_schedules_are_complete_and_free_of_deadlock(name: ScheduleName, v: int) -> None:
    for p in range(1, 17):
        for m in range(1, 65):
            check(build_schedule(name, p, m, v))


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_one_posted_receive_is_enough_where_groups_are_as_large_as_the_ring(name: ScheduleName) -> None:
    for p in range(1, 10):
        for m in range(1, 30):
            schedule = build_schedule(name, p, m)
            group = -(-m // max(1, m // p)) if name.startswith("interleaved") else p
            assert receives_to_post(schedule) <= max(1, group - p + 1), (p, m)


@pytest.mark.parametrize(("name", "v"), CASES)
def test_transfers_and_receives_agree(name: ScheduleName, v: int) -> None:
    for p, m in [(1, 3), (2, 1), (2, 5), (4, 4), (4, 11), (5, 3)]:
        schedule = build_schedule(name, p, m, v)
        lanes = transfers(schedule)
        check(schedule, receives=lanes)
        owner = schedule.stage_to_rank
        hops = sum(a != b for a, b in pairwise(owner))
        for payload in Payload:
            messages = [x for lane, sent in lanes.items() if lane.payload is payload for x in sent]
            assert len(messages) == len(set(messages)) == hops * m
        for lane, sent in lanes.items():
            assert lane.source != lane.destination
            assert {owner[message.stage] for message in sent} == {lane.destination}


def test_placements() -> None:
    assert build_schedule("interleaved_1f1b", 3, 1, 2).stage_to_rank == (0, 1, 2, 0, 1, 2)
    for name in ("zbv", "dualpipe_v"):
        schedule = build_schedule(name, 3, 4)
        assert schedule.stage_to_rank == (0, 1, 2, 2, 1, 0)
        assert [schedule.stages_of(rank) for rank in range(3)] == [(0, 5), (1, 4), (2, 3)]


@pytest.mark.parametrize(
    ("name", "p", "m", "v", "said"),
    [
        ("2f2b", 2, 2, None, "no pipeline schedule is called '2f2b'"),
        ("gpipe", 0, 2, None, "at least one rank"),
        ("gpipe", 2, 0, None, "one micro-batch"),
        ("1f1b", 2, 2, 2, "exactly 1"),
        ("interleaved_1f1b", 2, 2, 1, "2 or more"),
        ("interleaved_zero_bubble", 2, 2, 0, "1 or more"),
        ("zbv", 2, 2, 3, "exactly 2"),
    ],
)
def test_impossible_schedules_are_refused(name: ScheduleName, p: int, m: int, v: int | None, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        build_schedule(name, p, m, v)
