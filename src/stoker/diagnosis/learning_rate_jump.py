"""A learning rate that leaves the course it was on."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding
from stoker.diagnosis.recent_past import Curve, Mask, Numbers
from stoker.diagnosis.remedies import remedy

_FEWEST_ROWS = 8
_FIRST_ROWS = 3
_FACTOR = 1.25
"""Beyond both the row before and the line through the two rows before. Schedules turn; they do not jump."""
_BACK = 1.1
_RECORDED = 0.99
"""It is in the record, and only whether it was meant is not."""


def find_learning_rate_jumps(rate: Curve, decided: float = 1.0) -> list[Finding]:
    """Rows whose learning rate is a quarter above or below what the rows before lead to.

    `decided` is a factor by which the run itself lowers its rate for a time: changes by it are no jumps. A jump
    ends where the rate jumps back. A warning upwards; a note downwards.
    """
    curve = rate.positive
    if curve.steps.size < _FEWEST_ROWS:
        return []
    expected = _led_to(curve)
    factor = curve.values / expected
    jumps = np.flatnonzero(_jumped(curve.values, expected) & ~_is_decided(factor, decided))
    found: list[Finding] = []
    at = 0
    while at < jumps.size:
        row = int(jumps[at])
        back = next((int(one) for one in jumps[at + 1 :] if _undoes(curve.values, row, int(one))), None)
        found.append(_finding(curve, row, back, float(expected[row])))
        at = int(np.searchsorted(jumps, row if back is None else back, side="right"))
    return found


def _led_to(curve: Curve) -> Numbers:
    """What the rate would be on the line through the two rows before; the nearer of it and the row before."""
    steps, values = curve.steps.astype(np.float64), curve.values
    expected = values.copy()
    slope = (values[1:-1] - values[:-2]) / np.maximum(steps[1:-1] - steps[:-2], 1)
    line = np.maximum(values[1:-1] + slope * (steps[2:] - steps[1:-1]), 0)
    low, high = np.minimum(line, values[1:-1]), np.maximum(line, values[1:-1])
    expected[2:] = np.clip(values[2:], np.maximum(low, 1e-300), high)
    expected[:_FIRST_ROWS] = values[:_FIRST_ROWS]
    return expected


def _jumped(values: Numbers, expected: Numbers) -> Mask:
    factor = values / expected
    return np.asarray((factor > _FACTOR) | (factor < 1 / _FACTOR))


def _is_decided(factor: Numbers, decided: float) -> Mask:
    near = np.minimum(np.abs(np.log(factor / decided)), np.abs(np.log(factor * decided)))
    return np.asarray((near < 0.02) & (decided != 1.0))


def _undoes(values: Numbers, jump: int, later: int) -> bool:
    """Whether at row `later` the rate comes back to about where it was before row `jump`."""
    ratio = values[later] / values[jump - 1]
    return bool(1 / _BACK**2 < ratio < _BACK**2) or bool(
        abs(np.log(values[later] / values[later - 1]) + np.log(values[jump] / values[jump - 1])) < np.log(_BACK)
    )


def _finding(curve: Curve, row: int, back: int | None, expected: float) -> Finding:
    step = int(curve.steps[row])
    upwards = curve.values[row] > expected
    return Finding(
        kind="learning_rate_jump",
        severity="warning" if upwards else "note",
        first_step=step,
        last_step=int(curve.steps[-1 if back is None else back - 1]),
        confidence=_RECORDED,
        evidence=(
            Evidence(measure="learning rate", expected=expected, observed=float(curve.values[row]), step=step),
        ),
        remedy=remedy("check_learning_rate", step=step),
    )
