"""A loss that steps down from one row to the next: often easier or repeated text, or a change in how it is
counted."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.level_shift import Shift, level_shifts
from stoker.diagnosis.loss_spike import LEAST_DEVIATION
from stoker.diagnosis.recent_past import Curve, Numbers, window_of
from stoker.diagnosis.remedies import remedy

_LEAST = float(np.log(1.04))
_NOTABLE = float(np.log(1.15))
_EARLY_SHARE = 0.1
"""Of the rows: in the beginning a loss may fall in steps while the model learns its first words."""
_RATE_CHANGED = 0.1
_ABRUPT_SHARE = 0.5


def find_loss_drops(loss: Curve, learning_rate: Curve) -> list[Finding]:
    """Downward changes of level (`level_shift`, of the logarithm, beyond the curve's own trend).

    Not in the first tenth of the rows, nor where the learning rate changed by a tenth meanwhile, whose decay lowers
    the loss. A drop of 13% or more at once is a warning.
    """
    curve = loss.positive
    logs = np.log(curve.values)
    window = window_of(logs.size)
    found = []
    for shift in level_shifts(logs, _LEAST, LEAST_DEVIATION / 2, detrend=True):
        size = shift.before - shift.after
        early = shift.at < max(2 * window, _EARLY_SHARE * logs.size)
        if size > 0 and not early and not _rate_moved(learning_rate, curve, shift.at, window):
            found.append(_finding(curve, logs, shift, size))
    return found


def _rate_moved(rate: Curve, curve: Curve, at: int, window: int) -> bool:
    first, last = curve.steps[max(at - window, 0)], curve.steps[min(at + window, curve.steps.size - 1)]
    rates = rate.values[np.searchsorted(rate.steps, first) : np.searchsorted(rate.steps, last, side="right")]
    rates = rates[np.isfinite(rates)]
    return bool(rates.size and rates.max() - rates.min() > _RATE_CHANGED * rates.max())


def _finding(curve: Curve, logs: Numbers, shift: Shift, size: float) -> Finding:
    at = shift.at
    abrupt = np.median(logs[max(at - 3, 0) : at]) - np.median(logs[at : at + 3]) > _ABRUPT_SHARE * size
    step = int(curve.steps[at])
    return Finding(
        kind="step_drop",
        severity="warning" if size > _NOTABLE and abrupt else "note",
        first_step=step,
        last_step=step,
        confidence=confidence_of(size, shift.limit),
        evidence=(
            Evidence(measure="loss, median of a window", expected=float(np.exp(shift.before)),
                     observed=float(np.exp(shift.after)), step=step),
        ),
        remedy=remedy("check_for_repeats", step=step),
    )  # fmt: skip
