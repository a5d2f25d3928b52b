"""When to try again, and when that would only be a loop."""

from __future__ import annotations

from stoker.recipe import Recovery
from stoker.recovery.endurance import Endurance


def test_the_first_failure_restarts_at_once_and_failures_without_progress_wait_longer_and_longer() -> None:
    endurance = Endurance(Recovery(same_failure=100))
    waits = [endurance.judge("killed", f"case {'abcdefghij'[i]}", 5, 4).delay_seconds for i in range(9)]
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_new_step_makes_the_next_restart_immediate_again() -> None:
    endurance = Endurance(Recovery())
    for step in range(1, 50):
        assert endurance.judge("killed", "rank 1 was killed", step, step - 1).delay_seconds == 0.0


def test_the_same_step_that_fails_the_same_way_three_times_ends_the_run_and_says_so() -> None:
    endurance = Endurance(Recovery())
    assert endurance.judge("error", "connection to port 4711 lost", 7, 4).gives_up is None
    assert endurance.judge("error", "connection to port 4712 lost", 7, 4).gives_up is None
    verdict = endurance.judge("error", "connection to port 4713 lost", 7, 4)
    assert verdict.gives_up == "it failed in the same way 3 times after step 7"


def test_other_steps_and_other_ways_are_counted_apart() -> None:
    endurance = Endurance(Recovery())
    for step, message in [(7, "a"), (7, "b"), (8, "a"), (7, "a"), (7, "b"), (8, "a")]:
        assert endurance.judge("error", message, step, 4).gives_up is None
    assert endurance.judge("error", "a", 7, 4).gives_up is not None
