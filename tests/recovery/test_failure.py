"""What ended an attempt, in words and for the record."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.errors import OutOfMemory
from stoker.recovery import crew
from stoker.recovery.crew import LocalCrew, Sight
from stoker.recovery.failure import first_failure, lost_node
from stoker.training.marks import Board

MARK = Board(1).read(0)


def killed(number: signal.Signals, memory_ran_out: bool | None) -> dict[int, Sight]:
    return {0: Sight(MARK, "S", None, None, True), 3: Sight(MARK, "?", -number, None, False, memory_ran_out)}


def test_a_rank_that_its_node_killed_for_memory_is_told_as_such() -> None:
    failure = first_failure(killed(signal.SIGKILL, memory_ran_out=True))
    assert failure is not None
    assert (failure.kind, failure.ranks) == ("out_of_memory", (3,))
    assert isinstance(failure.error, OutOfMemory)
    plain = first_failure(killed(signal.SIGKILL, memory_ran_out=False))
    assert plain is not None
    assert plain.kind == "killed"


@pytest.mark.parametrize(
    ("ran_out", "said"),
    [
        (False, "rank 3 was killed by SIGKILL from outside (the system did not run out of memory)."),
        (None, "rank 3 was killed by SIGKILL; often that is the system running out of memory."),
    ],
    ids=["counted", "not-counted"],
)
def test_memory_is_suspected_only_where_the_system_does_not_count_its_kills(
    ran_out: bool | None, said: str
) -> None:
    failure = first_failure(killed(signal.SIGKILL, ran_out))
    assert failure is not None
    assert failure.message == said


@pytest.mark.parametrize(
    ("counted", "code", "said"),
    [((4, 5), -9, True), ((4, 4), -9, False), ((4, 5), -15, False), ((4, 5), None, False)],
    ids=["for-memory", "plain-kill", "sigterm", "alive"],
)
def test_each_node_counts_its_own_kills_for_memory(
    monkeypatch: pytest.MonkeyPatch, counted: tuple[int, int], code: int | None, said: bool
) -> None:
    """The count of the node that leads says nothing about another."""
    counts = iter(counted)
    monkeypatch.setattr(crew, "oom_kills", lambda: next(counts))
    process: Any = SimpleNamespace(
        process=SimpleNamespace(pid=None, exitcode=code), failure=None, listening=False, is_alive=code is None
    )
    monkeypatch.setattr(crew, "start_ranks", lambda *given: [process])
    here = LocalCrew("b", "127.0.0.1")
    here.start(None, (1,), ("127.0.0.1", 1), ())  # type: ignore[arg-type]
    assert here.sights()[1].memory_ran_out is said


def test_a_lost_node_is_named_with_those_that_are_still_there() -> None:
    failure = lost_node("c", (4, 5), "it has not been heard of for 6.5 s", ["a", "b"])
    assert failure.message == (
        "node c was lost, with ranks 4, 5: it has not been heard of for 6.5 s; a, b can be reached."
    )
    assert (failure.evidence["arrived"], failure.evidence["missing"]) == (["a", "b"], ["c"])
