"""What repeated tokens are worth: the law's limits, and figures of the paper."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.repetition import REPEATS_DECAY, effective_tokens


@given(st.integers(1, 10**12), st.floats(0, 1))
def test_every_token_of_the_first_epoch_is_worth_itself(unique: int, share: float) -> None:
    assert effective_tokens(unique, share * unique) == share * unique


@given(st.integers(1, 10**12), st.floats(1, 1000), st.floats(1, 2))
def test_more_repeats_are_worth_more_and_each_less_than_the_one_before(
    unique: int, epochs: float, times: float
) -> None:
    few, many = effective_tokens(unique, epochs * unique), effective_tokens(unique, epochs * times * unique)
    assert few <= many * (1 + 1e-12)
    assert many - few <= (epochs * times - epochs) * unique * (1 + 1e-9)
    assert many < unique * (1 + REPEATS_DECAY) * (1 + 1e-12)


def test_after_the_decay_s_repeats_they_are_worth_all_but_one_part_in_e() -> None:
    worth = effective_tokens(1000, 1000 * (1 + REPEATS_DECAY)) - 1000
    assert worth / (1000 * REPEATS_DECAY) == pytest.approx(1 - 1 / math.e)


def test_four_epochs_are_nearly_as_good_as_new_text() -> None:
    assert effective_tokens(1000, 4000) == pytest.approx(4000, rel=0.08)
