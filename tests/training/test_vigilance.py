"""What stands out from a run's recent past, and what does not."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from stoker.recipe import Recovery
from stoker.training.interventions import Intervention, Interventions
from stoker.training.vigilance import Vigilance


def calm(seed: int, step: int) -> tuple[float, float]:
    """Loss and gradient norm of a run that goes well: a falling curve with noise."""
    dice = random.Random(f"{seed} {step}")
    loss = 2.0 + 6.0 * math.exp(-step / 300) + dice.gauss(0, 0.04)
    return loss, math.exp(dice.gauss(-0.5 - 0.3 * min(step, 500) / 500, 0.25))


def after_calm(steps: int = 200, seed: int = 0, **recovery: object) -> Vigilance:
    vigilance = Vigilance(Recovery.model_validate(recovery))
    for step in range(1, steps + 1):
        assert vigilance.judge(step, *calm(seed, step)) is None
    return vigilance


@pytest.mark.parametrize("seed", range(5))
def test_ten_thousand_steps_of_a_run_that_goes_well_raise_no_alarm(seed: int) -> None:
    after_calm(10_000, seed)


def test_a_loss_that_jumps_by_half_is_a_spike_and_names_measure_median_and_limit() -> None:
    alarm = after_calm().judge(201, 7.9, 0.5)
    assert alarm is not None
    assert (alarm.kind, alarm.measure, alarm.step, alarm.first_step) == ("spike", "loss", 201, 201)
    assert 4.9 < alarm.expected < 5.6
    assert alarm.expected < alarm.limit < alarm.observed == 7.9


def test_a_gradient_norm_of_thirty_times_the_median_is_a_spike() -> None:
    alarm = after_calm().judge(201, calm(0, 201)[0], 16.0)
    assert alarm is not None
    assert (alarm.kind, alarm.measure) == ("spike", "gradient norm")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_told_from_the_first_step_on(value: float) -> None:
    vigilance = Vigilance(Recovery())
    for loss, norm in [(value, 1.0), (5.0, value)]:
        alarm = vigilance.judge(1, loss, norm)
        assert alarm is not None
        assert alarm.kind == "non_finite"


def test_a_loss_that_stays_up_is_a_divergence_and_knows_when_it_began() -> None:
    vigilance = after_calm(divergence_steps=4)
    kinds = []
    for step in range(201, 207):
        alarm = vigilance.judge(step, 7.9, 0.5)
        assert alarm is not None
        assert alarm.first_step == 201
        kinds.append(alarm.kind)
    assert kinds == ["spike"] * 3 + ["divergence"] * 3


def test_spikes_do_not_move_the_bar() -> None:
    vigilance = after_calm()
    for step in range(201, 231, 2):
        assert vigilance.judge(step, 9.0, 20.0) is not None
        assert vigilance.judge(step + 1, *calm(0, step + 1)) is None


def test_what_lasts_longer_than_the_window_is_the_usual_from_then_on() -> None:
    vigilance = after_calm(window=16)
    alarms = [vigilance.judge(step, 7.9, 0.5) for step in range(201, 260)]
    assert all(alarms[:16])
    assert not any(alarms[17:])


def test_nothing_stands_out_before_half_a_window_is_known() -> None:
    vigilance = Vigilance(Recovery(window=64))
    for step in range(1, 32):
        assert vigilance.judge(step, 8.0, 1.0) is None
    assert vigilance.judge(32, 100.0, 1.0) is None


def test_a_resumed_run_judges_as_the_uninterrupted_one() -> None:
    uninterrupted, resumed = after_calm(100), Vigilance(Recovery())
    uninterrupted.judge(101, 20.0, 1.0)
    resumed.load_state(json.loads(json.dumps(uninterrupted.as_state())))
    for step, loss in enumerate([6.9, 9.0, 9.5, 6.8, 7.2], 102):
        assert uninterrupted.judge(step, loss, 0.5) == resumed.judge(step, loss, 0.5)


def _skip(first: int, last: int, **more: object) -> Intervention:
    return Intervention.model_validate(
        {"action": "skip", "first_step": first, "last_step": last, "decided_at": last, "why": "a spike", **more}
    )


def test_decisions_are_about_their_steps_alone_and_survive_being_written(tmp_path: Path) -> None:
    path = tmp_path / "interventions.json"
    assert Interventions.read(path) == Interventions()
    lowered = Intervention(
        action="lower_learning_rate", first_step=5, last_step=8, factor=0.5, decided_at=9, back_to=4, why="diverged"
    )
    decided = Interventions().with_one(_skip(7, 9, back_to=4)).with_one(lowered).with_one(_skip(20, 20))
    decided.write(path)
    assert Interventions.read(path) == decided
    assert [step for step in range(30) if decided.skips(step)] == [7, 8, 9, 20]
    assert [step for step in range(30) if decided.learning_rate_factor(step) == 0.5] == [5, 6, 7, 8]
    assert decided.count == 5  # four steps left out, once gone back
    assert decided.times_back_to(4) == 1
    assert decided.times_back_to(3) == 0
