"""When silence is a hang: the threshold follows the measured step, and nothing else than a hang crosses it."""

from __future__ import annotations

import random

import pytest

from stoker.recipe import Recovery
from stoker.recovery.silence import Silence
from stoker.training.marks import Mark


class Run:
    """Ranks whose marks and clock a test moves by hand."""

    def __init__(self, ranks: int = 2, **recovery: float) -> None:
        self.now = 100.0
        self.silence = Silence(Recovery.model_validate(recovery))
        self.begin(ranks)

    def begin(self, ranks: int = 2, step: int = 0) -> None:
        self.silence.begin(ranks, self.now)
        self.marks = [Mark(0, step, None, "starting", self.now, 0.0, 0.0, 0) for _ in range(ranks)]

    def mark(self, phase: str, *, after: float, only: int | None = None, step_done: float | None = None) -> None:
        self.now += after
        for rank, mark in enumerate(self.marks):
            if only is None or rank == only:
                step = mark.step + (step_done is not None)
                seconds = mark.step_seconds if step_done is None else step_done
                self.marks[rank] = Mark(mark.beats + 1, step, 0, phase, self.now, seconds, 0.0, 0)
        self.silence.look(self.marks, self.now)

    def step(self, seconds: float) -> None:
        for phase in ("data", "forward", "backward", "optimizer"):
            self.mark(phase, after=seconds / 4)
        self.mark("between phases", after=0.0, step_done=seconds)

    def hanging(self, states: str = "SS", *, after: float) -> list[int]:
        self.now += after
        self.silence.look(self.marks, self.now)
        return self.silence.hanging(self.now, list(states))


def started(step: float = 1.0, **recovery: float) -> Run:
    run = Run(**recovery)
    run.mark("loading", after=3.0)
    for _ in range(20):
        run.step(step)
    return run


def test_a_silence_of_three_median_steps_is_a_hang_and_shorter_is_not() -> None:
    run = started(step=4.0)
    run.mark("forward", after=0.1)
    assert not run.hanging(after=11.9)
    assert run.hanging(after=0.2) == [0, 1]


def test_steps_that_are_short_are_given_five_seconds() -> None:
    run = started(step=0.01)
    run.mark("forward", after=0.01)
    assert not run.hanging(after=4.9)
    assert run.hanging(after=0.2) == [0, 1]


def test_only_the_rank_that_is_silent_hangs() -> None:
    run = started()
    for _ in range(8):
        run.mark("forward", after=1.0, only=0)
    assert run.hanging(after=0.0) == [1]


def test_what_runs_is_given_four_times_as_long_as_what_waits() -> None:
    run = started()
    run.mark("forward", after=0.1)
    assert not run.hanging("RR", after=15.0)
    assert run.hanging("RR", after=6.0) == [0, 1]


def test_a_stopped_process_hangs_in_any_phase_also_one_that_may_take_long() -> None:
    run = started()
    run.mark("evaluation", after=0.1)
    assert run.hanging("ST", after=5.1) == [1]
    assert not run.hanging("SS", after=100.0)


def test_the_first_step_and_the_first_evaluation_may_take_long_and_teach_how_long_later_ones_may() -> None:
    run = Run()
    run.mark("loading", after=1.0)
    run.mark("forward", after=1.0)
    assert not run.hanging(after=500.0), "compiling"
    run.mark("between phases", after=0.0, step_done=501.0)
    for _ in range(30):
        run.step(1.0)
    run.mark("evaluation", after=0.1)
    assert not run.hanging(after=20.0)
    run.mark("between phases", after=0.0)
    run.step(1.0)
    run.mark("evaluation", after=0.1)
    assert not run.hanging(after=59.0)
    assert run.hanging(after=2.0) == [0, 1]


def test_a_restart_that_hangs_while_loading_is_found_by_what_the_first_start_took() -> None:
    run = started()  # loading took one quarter of a step
    run.begin()
    run.mark("loading", after=0.5)
    assert not run.hanging(after=4.5)
    assert run.hanging(after=1.0) == [0, 1]


def test_time_in_which_nobody_looked_is_no_silence() -> None:
    run = started()
    run.mark("forward", after=0.1)
    run.now += 3600.0  # the machine slept
    run.silence.look(run.marks, run.now, blind=3599.0)
    assert not run.silence.hanging(run.now, ["S", "S"])


@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_clean_steps_with_evaluations_and_checkpoints_raise_no_alarm(seed: int) -> None:
    dice = random.Random(seed)
    typical = 10 ** dice.uniform(-2, 1.5)
    run = Run(ranks=4)
    run.mark("loading", after=5.0)
    alarms = []
    for step in range(2500):
        for phase in ("data", "forward", "backward", "communication", "optimizer"):
            # A step of a shared machine takes up to three times as long as the median one, now and then.
            run.mark(phase, after=typical / 5 * min(dice.lognormvariate(0, 0.35), 3.0))
            alarms += run.silence.hanging(run.now, ["S"] * 4)
        run.mark("between phases", after=0.0, step_done=typical)
        if step % 50 == 49:
            for _ in range(6):
                run.mark("evaluation", after=typical * dice.uniform(0.5, 1.2))
            run.mark("checkpoint", after=typical * dice.uniform(0.1, 2.0))
            run.mark("between phases", after=typical * dice.uniform(1.0, 2.5))
        alarms += run.silence.hanging(run.now, ["S"] * 4)
    assert not alarms
