"""Rises of the loss too small for a spike by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.diagnosis import Finding
from stoker.diagnosis.document_spike import FAINT, find_faint_spikes
from stoker.diagnosis.loss_spike import find_spikes
from stoker.diagnosis.recent_past import Curve
from tests.diagnosis.test_slowness import seen

ROWS, AT = 200, 120


def curves(seed: int, loss: float, gradient: float) -> tuple[Curve, Curve]:
    """A loss that falls, and a gradient norm, with one row in which they are so much higher, in logarithms."""
    draw = np.random.default_rng(seed)
    steps = np.arange(1, ROWS + 1)
    noise = 0.012 * draw.standard_normal(ROWS)
    norms = np.log(0.6) + 0.1 * draw.standard_normal(ROWS)
    noise[AT] = loss
    norms[AT] = np.log(0.6) + gradient
    logs = np.log(5.0) - 0.3 * np.log1p(steps / 40) + noise
    return Curve(steps, np.exp(logs)), Curve(steps, np.exp(norms))


@pytest.mark.parametrize("seed", range(8))
def test_a_rise_of_loss_and_gradients_in_one_row_is_found_though_neither_is_a_spike(seed: int) -> None:
    loss, norm = curves(seed, 0.09, 0.9)
    assert not [one for one in find_spikes(loss) if one.first_step == AT + 1]
    firm = [one for one in find_faint_spikes(loss, norm) if one.confidence > FAINT]
    assert any(_covers(one) for one in firm)
    assert {one.severity for one in firm} == {"note"}


@pytest.mark.parametrize("seed", range(8))
def test_without_the_gradients_it_stays_faint(seed: int) -> None:
    found = find_faint_spikes(*curves(seed, 0.09, 0.0))
    assert [one.confidence for one in found if _covers(one)] == [FAINT]


def test_next_to_a_finding_that_explains_it_there_is_none() -> None:
    loss, norm = curves(3, 0.09, 0.9)
    explains = seen(AT, AT + 8).model_copy(update={"kind": "update_jump"})
    assert not any(_covers(one) for one in find_faint_spikes(loss, norm, [explains], 8))
    follows = seen(AT + 6, AT + 9).model_copy(update={"kind": "gradient_growth"})
    assert not any(_covers(one) for one in find_faint_spikes(loss, norm, [follows], 8))
    assert any(_covers(one) for one in find_faint_spikes(loss, norm))


def _covers(found: Finding) -> bool:
    return (found.first_step or 0) <= AT + 1 <= (found.last_step or 0)
