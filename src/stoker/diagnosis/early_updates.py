"""Updates of the first steps that replace much of what the weights were begun with."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Curve
from stoker.diagnosis.remedies import remedy

CAUSE = "warmup_too_short"
_LARGE = 0.1
"""Of the weights' norm in one step: a hundred times what is usual in training."""
_FIRST_ROWS = 8
_TIMES_LATER = 4.0
_LATER_ROWS = 32


def find_early_updates(update: Curve, weight: Curve) -> list[Finding]:
    """A run whose update norm is largest in the first eight rows, a tenth of the weights' norm or more, and four
    times what it is from row 32 on (where there are such rows).

    Only of a record that begins with the run's beginning. A warning: the weights were drawn to be begun with, and
    what is left of them is not what was drawn.
    """
    update, weight = update.positive, weight.positive
    if not update.steps.size or not weight.steps.size or update.steps[0] > 2 * _FIRST_ROWS:
        return []
    row = int(np.argmax(update.values))
    share = float(update.values[row] / weight.values[0])
    later = update.values[_LATER_ROWS:]
    if (
        row >= _FIRST_ROWS
        or share < _LARGE
        or (later.size and update.values[row] < _TIMES_LATER * np.median(later))
    ):
        return []
    step = int(update.steps[row])
    return [
        Finding(
            kind="update_jump",
            cause=CAUSE,
            severity="warning",
            first_step=step,
            last_step=step,
            confidence=confidence_of(share, _LARGE),
            evidence=(
                Evidence(measure="update norm over the weights' norm", expected=_LARGE, observed=share, step=step),
            ),
            remedy=remedy("longer_warmup", step=step),
        )
    ]
