"""Who waits is told from who is starved, and time in which nobody could look is not held against anyone."""

from __future__ import annotations

import pytest

from stoker.data.executors.idleness import Idleness


def test_a_process_that_uses_nothing_is_idle_for_as_long_as_the_clock_runs() -> None:
    idleness = Idleness(now=100, used=7, most_at_once=60)
    assert [idleness.seconds(100 + elapsed, 7) for elapsed in (30, 60, 90)] == [30, 60, 90]


@pytest.mark.parametrize("share", [0.01, 0.1, 1])
def test_a_process_that_others_leave_little_of_its_processor_is_not_idle(share: float) -> None:
    idleness = Idleness(now=0, used=0, most_at_once=60)
    assert [idleness.seconds(elapsed, share * elapsed) for elapsed in (30, 60, 90)] == [0, 0, 0]


def test_a_loop_that_asks_and_sleeps_is_idle() -> None:
    idleness = Idleness(now=0, used=0, most_at_once=60)
    assert idleness.seconds(30, 30 * 5e-5) == 30


def test_idleness_begins_anew_when_the_process_goes_on() -> None:
    idleness = Idleness(now=0, used=0, most_at_once=60)
    assert [idleness.seconds(30, 0), idleness.seconds(60, 5), idleness.seconds(75, 5)] == [30, 0, 15]


def test_time_in_which_nobody_looked_counts_for_little() -> None:
    """A laptop that was closed for an hour has no idle worker when it is opened."""
    assert Idleness(now=0, used=0, most_at_once=60).seconds(3600, 0) == 60
