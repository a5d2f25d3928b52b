"""Attention logits that run away, and those that only learn."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.diagnosis.incidents import together
from stoker.diagnosis.logit_growth import find_logit_growth
from stoker.diagnosis.recent_past import Curve, Numbers
from tests.diagnosis.test_slowness import seen

ROWS, AT = 48, 24


def logits(seed: int, growth: Numbers) -> dict[str, Curve]:
    noise = np.exp(0.04 * np.random.default_rng(seed).standard_normal(ROWS))
    return {"blocks.1.attention": Curve(5 * np.arange(1, ROWS + 1), 2.5 * growth * noise)}


def exponential(rate: float, rows: int = ROWS) -> Numbers:
    """Growth by `rate` a row from row `AT` on, for `rows` rows."""
    return np.exp(rate * np.clip(np.arange(ROWS) - AT, 0, rows))


@pytest.mark.parametrize("seed", range(8))
def test_logits_that_double_every_few_rows_are_warned_of_with_the_row_it_began(seed: int) -> None:
    (found,) = find_logit_growth(logits(seed, exponential(0.3)), {})
    assert found.severity == "warning"
    assert found.first_step is not None
    assert abs(found.first_step - 5 * (AT + 2)) <= 10


@pytest.mark.parametrize("seed", range(8))
def test_they_are_warned_of_long_before_attention_is_saturated(seed: int) -> None:
    whole = logits(seed, exponential(0.3))["blocks.1.attention"]
    for rows in range(AT, ROWS):
        seen = {"blocks.1.attention": Curve(whole.steps[:rows], whole.values[:rows])}
        if any(one.severity == "warning" for one in find_logit_growth(seen, {})):
            break
    assert whole.values[rows - 1] < 25


@pytest.mark.parametrize("seed", range(8))
def test_logits_that_stop_growing_by_themselves_are_a_note(seed: int) -> None:
    """From 2.5 to 7 within six rows, and not further: attention learns to look somewhere."""
    found = find_logit_growth(logits(seed, exponential(0.17, 6)), {})
    assert [one.severity for one in found] in ([], ["note"])


@pytest.mark.parametrize("seed", range(4))
def test_logits_that_grew_and_then_go_up_and_down_are_a_note(seed: int) -> None:
    """Two rises in the last three rows are no growth that goes on."""
    growth = exponential(0.22, 7)
    growth[-10:] *= np.tile([0.5, 1.0], 5)
    assert [one.severity for one in find_logit_growth(logits(seed, growth), {})] == ["note"]


@pytest.mark.parametrize("seed", range(4))
def test_logits_that_stopped_only_where_attention_is_nearly_saturated_are_warned_of(seed: int) -> None:
    (found,) = find_logit_growth(logits(seed, exponential(0.3, 10)), {})
    assert found.severity == "warning"


def test_a_spike_long_after_logits_stopped_growing_is_an_incident_of_its_own() -> None:
    (grown,) = find_logit_growth(logits(1, exponential(0.17, 6)), {})
    spike = seen(5 * ROWS - 20, 5 * ROWS - 18).model_copy(update={"kind": "spike", "severity": "note"})
    assert len(together([grown, spike], 8)) == 2
    (harmful,) = find_logit_growth(logits(1, exponential(0.3)), {})
    assert len(together([harmful, spike], 8)) == 1
