"""First steps that replace much of the weights are told from those of a run that warms up."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.early_updates import find_early_updates
from stoker.diagnosis.recent_past import Curve

STEPS = np.arange(1, 101)
WEIGHTS = Curve(STEPS[4::5], np.full(20, 20.0))


def test_a_first_step_that_replaces_a_third_of_the_weights_is_a_warm_up_too_short() -> None:
    (finding,) = find_early_updates(Curve(STEPS, 0.5 + 6.3 * np.exp(-STEPS / 8)), WEIGHTS)
    assert (finding.cause, finding.severity, finding.first_step) == ("warmup_too_short", "warning", 1)


def test_updates_that_grow_with_their_rate_or_stay_small_are_not() -> None:
    warmed = np.minimum(STEPS / 20, 1) * (0.4 + np.exp(-STEPS / 30))
    assert find_early_updates(Curve(STEPS, warmed), WEIGHTS) == []
    assert find_early_updates(Curve(STEPS, 0.2 + 1.2 * np.exp(-STEPS / 8)), WEIGHTS) == []


def test_a_record_that_begins_in_the_middle_says_nothing_of_it() -> None:
    late = Curve(STEPS + 500, 0.5 + 6.3 * np.exp(-STEPS / 8))
    assert find_early_updates(late, WEIGHTS) == []
