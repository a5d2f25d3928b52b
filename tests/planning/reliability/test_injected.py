"""Failures that a drill injects: the residual times, the formula against the simulation, and published runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stoker.planning.reliability import read_run
from stoker.planning.reliability.formula import goodput_of
from stoker.planning.reliability.process import process_of
from stoker.planning.reliability.runs import simulate
from stoker.planning.reliability.spacing import Schedule, survival_after

_PUBLISHED = Path(__file__).parents[3] / "examples" / "simulate"


@pytest.mark.parametrize("since", [0.0, 4.0, 17.0, 29.0, 75.0])
def test_the_next_failure_after_some_time_is_as_far_away_as_drawing_many_says(since: float) -> None:
    random = np.random.default_rng(0)
    due = np.cumsum(30 * random.random((20_000, 40)), axis=1)
    rest = np.where(due > since, due, np.inf).min(axis=1) - since
    for further in (1.0, 5.0, 12.0, 25.0):
        alive = float(survival_after("uniform", 15.0, since, np.array([further]))[0])
        assert alive == pytest.approx((rest > further).mean(), abs=0.015)


def test_what_came_unwatched_is_counted_and_lies_behind() -> None:
    schedule = Schedule("uniform", 10.0, 2, np.random.default_rng(0))
    both = np.arange(2)
    counted = schedule.missed(both, np.array([1000.0, 1e9]))
    assert counted[0] == pytest.approx(100, abs=25)
    assert counted[1] == pytest.approx(1e8, rel=1e-3)
    assert (schedule.next > [1000.0, 1e9]).all()
    assert (schedule.next < [1020.1, 1e9 + 20.1]).all()


@pytest.mark.parametrize("name", ["torchft-60s", "torchft-15s"])
def test_formula_and_simulation_agree_on_groups_that_a_drill_kills(name: str) -> None:
    process = process_of(read_run(_PUBLISHED / f"{name}.yaml"))
    formula = goodput_of(process)
    drawn = simulate(process, 64, 0, wall_seconds=200 / process.rate)
    assert drawn.kept.sum() / drawn.wall.sum() == pytest.approx(formula.effective, abs=0.01)
    assert drawn.committed.mean() == pytest.approx(formula.committed, abs=0.015)


def test_torchft_with_a_failure_every_15_seconds_commits_less_than_a_third_of_its_steps() -> None:
    process = process_of(read_run(_PUBLISHED / "torchft-15s.yaml"))
    formula = goodput_of(process)
    assert formula.committed == pytest.approx(268 / 888, abs=0.05)
    assert process.step * formula.committed / formula.effective == pytest.approx(15.46, rel=0.1)


def test_weights_that_others_wait_for_make_steps_longer_and_more_of_them_fail() -> None:
    def found(heal: float) -> tuple[float, float]:
        run = read_run(_PUBLISHED / "torchft-15s.yaml", [f"replicas.heal_seconds={heal}"])
        goodput = goodput_of(process_of(run))
        return goodput.committed, goodput.effective

    committed, effective = zip(*(found(heal) for heal in (0, 2, 4, 8)), strict=True)
    assert list(committed) == sorted(committed, reverse=True)
    assert list(effective) == sorted(effective, reverse=True)
