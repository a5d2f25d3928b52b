"""Which collective of the trace is which of the flight recorder's, and who came last to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stoker.layout import Layout
from stoker.profiling.collectives import Entry, dimension_of, entries_of, meetings, with_groups
from stoker.profiling.trace import Transfer


def entry(kind: str, group: str, sequence: int, moment: int, shape: tuple[int, ...] = (4,)) -> Entry:
    ranks = (0, 1) if group == "a" else (0, 2)
    return Entry(kind, group, sequence, ranks, moment, shape, 16)


def transfer(kind: str, start: int, end: int, thread: int, shape: tuple[int, ...] = (4,), **more: Any) -> Transfer:
    return Transfer(kind, start, end, (11, thread), shape, **more)


def test_a_background_thread_serves_one_group() -> None:
    entries = [
        entry("all_reduce", "a", 1, 10),
        entry("all_reduce", "b", 1, 11),
        entry("all_gather", "b", 2, 12, (9,)),
        entry("all_reduce", "a", 2, 30),
        entry("broadcast", "a", 3, 31),
        entry("all_gather", "b", 3, 41, (9,)),
    ]
    # The second group's thread is quicker: in order of time alone it would get the first group's collective.
    transfers = [
        transfer("all_reduce", 13, 20, thread=8),
        transfer("all_reduce", 14, 25, thread=7),
        transfer("all_gather", 21, 26, thread=8, shape=(9,)),
        transfer("broadcast", 35, 40, thread=7),
        transfer("all_reduce", 32, 34, thread=7),
        transfer("all_gather", 42, 43, thread=8, shape=(9,)),
    ]
    found = [(one.group, one.sequence, one.ranks) for one in with_groups(transfers, entries)]
    a, b = (0, 1), (0, 2)
    assert found == [("b", 1, b), ("a", 1, a), ("b", 2, b), ("a", 3, a), ("a", 2, a), ("b", 3, b)]


def test_a_transfer_that_nobody_noted_has_no_group() -> None:
    (found,) = with_groups([transfer("scatter", 1, 2, thread=7)], [entry("all_reduce", "a", 1, 0)])
    assert (found.group, found.ranks) == ("", ())


def test_the_flight_recorder_is_read_from_when_steps_were_traced() -> None:
    recorded = {
        "profiling_name": "gloo:all_reduce",
        "process_group": ["3", "undefined"],
        "collective_seq_id": 7,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "input_sizes": [[2, 3], [5]],
        "input_dtypes": ["Float", "Half"],
        "time_created_ns": 100,
    }
    text = json.dumps({"entries": [recorded, {**recorded, "time_created_ns": 10}]})
    (found,) = entries_of(text, {"3": [1, 0]}, since=50)
    assert found == Entry("all_reduce", "3", 7, (0, 1), 100, (2, 3), 2 * 3 * 4 + 5 * 2)
    assert entries_of("{}", {}, 0) == []


@pytest.mark.parametrize(
    ("kind", "ranks", "named"),
    [
        ("all_reduce", (0, 1), "tp"),
        ("all_reduce", (0, 2), "dp_replicate"),
        ("all_reduce", (0, 4), "pp"),
        ("all_reduce", (0, 1, 2, 3), "dp_replicate+tp"),
        ("all_reduce", tuple(range(8)), "all ranks"),
        ("recv", tuple(range(8)), "pp"),
        ("scatter", (), "unknown"),
    ],
)
def test_the_dimension_is_what_the_ranks_of_the_group_differ_in(
    kind: str, ranks: tuple[int, ...], named: str
) -> None:
    layout = Layout(pp=2, dp_replicate=2, tp=2)
    assert dimension_of(layout, transfer(kind, 0, 1, thread=7, ranks=ranks)) == named


def test_experts_are_reached_by_all_to_all() -> None:
    layout = Layout(dp_replicate=2, ep=2)
    assert dimension_of(layout, transfer("all_to_all", 0, 1, thread=7, ranks=(0, 1))) == "ep"


def test_collectives_meet_by_group_and_number() -> None:
    def of(start: int, sequence: int) -> Transfer:
        return transfer("all_reduce", start, start + 9, thread=7, group="a", sequence=sequence, ranks=(0, 1))

    met = meetings({0: [of(5, 1), of(20, 2), of(50, 3)], 1: [of(25, 2), of(3, 1)]})
    assert [(one.last, one.last_moment, set(one.transfers)) for one in met] == [(0, 5, {0, 1}), (1, 25, {0, 1})]


def test_without_numbers_collectives_meet_in_order() -> None:
    def of(start: int) -> Transfer:
        return transfer("all_reduce", start, start + 9, thread=7, group="0", ranks=(0, 1))

    met = meetings({0: [of(5), of(20)], 1: [of(7), of(18)]})
    assert [(one.last, one.last_moment) for one in met] == [(1, 7), (0, 20)]
