"""The learning-rate factor, value by value."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.recipe import Schedule, Training
from stoker.training.schedule import learning_rate_factor

NAMES = ("cosine", "linear", "wsd", "inverse_sqrt", "constant")


def _factors(steps: int, **schedule: Any) -> list[float]:
    settings = Schedule.model_validate(schedule)
    return [learning_rate_factor(settings, step, steps) for step in range(1, steps + 1)]


@pytest.mark.parametrize("name", NAMES)
def test_warm_up_rises_linearly_from_its_first_step_to_one(name: str) -> None:
    assert _factors(20, name=name, warmup_steps=4)[:4] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "wsd"])
def test_without_warm_up_the_first_step_is_nearly_whole(name: str) -> None:
    assert _factors(1000, name=name)[0] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("minimum", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("name", ["cosine", "linear", "wsd"])
def test_the_last_step_is_exactly_the_minimum(name: str, minimum: float) -> None:
    for steps, warmup in ((20, 3), (20, 0), (2, 1), (1, 0)):
        assert _factors(steps, name=name, warmup_steps=warmup, minimum=minimum)[-1] == pytest.approx(
            minimum, abs=1e-15
        )


def test_cosine_is_half_a_cosine_from_the_end_of_warm_up() -> None:
    factors = _factors(12, name="cosine", warmup_steps=2, minimum=0.2)
    expected = [0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * k / 10)) for k in range(11)]
    assert factors[1:] == pytest.approx(expected, abs=1e-15)
    assert factors[6] == pytest.approx(0.6)


def test_linear_falls_by_the_same_amount_each_step() -> None:
    assert _factors(6, name="linear", warmup_steps=1, minimum=0.5) == pytest.approx([1, 0.9, 0.8, 0.7, 0.6, 0.5])


def test_wsd_holds_one_and_falls_linearly_over_its_decay() -> None:
    factors = _factors(10, name="wsd", warmup_steps=2, decay_steps=4, minimum=0.2)
    assert factors == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])


def test_wsd_decays_over_a_tenth_of_the_steps_unless_told_otherwise() -> None:
    assert _factors(20, name="wsd", minimum=0.0) == pytest.approx([1.0] * 18 + [0.5, 0.0])
    assert _factors(5, name="wsd", minimum=0.0) == pytest.approx([1.0] * 4 + [0.0])


def test_inverse_sqrt_leaves_warm_up_without_a_jump() -> None:
    factors = _factors(36, name="inverse_sqrt", warmup_steps=4)
    assert factors[3] == 1.0
    assert factors[4] == pytest.approx(math.sqrt(4 / 5))
    assert factors[15] == pytest.approx(0.5)
    assert factors[35] == pytest.approx(1 / 3)
    assert _factors(4, name="inverse_sqrt")[3] == pytest.approx(0.5)


def test_a_run_that_is_all_warm_up_ends_at_one() -> None:
    for name in NAMES:
        assert _factors(4, name=name, warmup_steps=4) == [0.25, 0.5, 0.75, 1.0]


def test_more_steps_do_not_change_what_came_before_a_decay() -> None:
    for name in ("constant", "inverse_sqrt"):
        assert _factors(200, name=name, warmup_steps=5)[:100] == _factors(100, name=name, warmup_steps=5)
    short = _factors(100, name="wsd", warmup_steps=5, decay_steps=20)
    assert _factors(200, name="wsd", warmup_steps=5, decay_steps=20)[:80] == short[:80]


@given(
    name=st.sampled_from(NAMES),
    steps=st.integers(1, 300),
    warmup_share=st.floats(0, 1),
    minimum=st.floats(0, 1),
    decay=st.none() | st.integers(1, 400),
)
def test_every_factor_lies_between_zero_and_one_and_never_rises_after_warm_up(
    name: str, steps: int, warmup_share: float, minimum: float, decay: int | None
) -> None:
    warmup = int(steps * warmup_share)
    factors = _factors(steps, name=name, warmup_steps=warmup, minimum=minimum, decay_steps=decay)
    assert all(0 <= factor <= 1 for factor in factors)
    fallen = factors[max(warmup - 1, 0) :]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(fallen))


def test_warm_up_and_decay_that_do_not_fit_are_refused() -> None:
    settings = {
        "steps": 10,
        "sequence_length": 4,
        "global_batch_size": 1,
        "schedule": {"name": "wsd", "warmup_steps": 4, "decay_steps": 7},
    }
    with pytest.raises(ValueError, match="together exceed steps"):
        Training.model_validate(settings)
    settings["schedule"]["decay_steps"] = 6  # type: ignore[index]
    assert Training.model_validate(settings).schedule.decay_steps == 6
