"""One row whose gradient is many times its usual, while its loss is usual: no document does that."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Curve, Numbers, usual
from stoker.diagnosis.remedies import remedy

_LEAST = float(np.log(10.0))
_LEAST_DEVIATION = 0.1
_BACK = float(np.log(3.0))
_LOSS_DEVIATIONS = 4.0
_LEAST_OF_LOSS = 0.02
_EARLY_ROWS = 16


def find_lone_gradients(norm: Curve, loss: Numbers) -> list[Finding]:
    """Rows whose gradient norm is ten times its recent median and beyond 8 deviations, between two that are not
    three times it, and whose loss stands out by less than half of what a spike takes.

    `loss` [rows] belongs to the rows of `norm`. Not in the first rows. A note: the update may have been clipped.
    """
    kept = np.isfinite(norm.values) & (norm.values > 0)
    curve, own = Curve(norm.steps[kept], norm.values[kept]), loss[kept]
    if curve.steps.size < 2 * _EARLY_ROWS:
        return []
    logs = np.log(curve.values)
    past = usual(logs, _LEAST_DEVIATION, _LEAST)
    rise = logs - past.expected
    with np.errstate(invalid="ignore", divide="ignore"):
        loss_logs = np.where(own > 0, np.log(own), np.nan)
    loss_past = usual(np.nan_to_num(loss_logs), _LEAST_OF_LOSS, _LEAST_OF_LOSS)
    found = []
    for row in np.flatnonzero(rise > past.limit).tolist():
        near = [one for one in (row - 1, row + 1) if 0 <= one < rise.size]
        calm = loss_logs[row] - loss_past.expected[row] < loss_past.limit[row] / 2
        if row >= _EARLY_ROWS and calm and all(rise[one] < _BACK for one in near):
            step = int(curve.steps[row])
            found.append(
                Finding(
                    kind="gradient_growth",
                    severity="note",
                    first_step=step,
                    last_step=step,
                    confidence=confidence_of(float(rise[row]), float(past.limit[row])),
                    evidence=(
                        Evidence(measure="gradient norm", expected=float(np.exp(past.expected[row])),
                                 observed=float(curve.values[row]), step=step),
                        Evidence(measure="loss of the same step", expected=float(np.exp(loss_past.expected[row])),
                                 observed=float(own[row]), step=step),
                    ),
                    remedy=remedy("watch"),
                )
            )  # fmt: skip
    return found
