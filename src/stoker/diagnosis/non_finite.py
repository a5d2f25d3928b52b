"""Figures that are NaN or Inf."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding
from stoker.diagnosis.recent_past import Curve, spelled
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.slow_rise import stretches

_JOINED_ROWS = 32


def find_non_finite(curve: Curve, measure: str) -> list[Finding]:
    """Stretches of rows whose recorded value is not finite; less than 32 rows apart they are one.

    A value that was not recorded is none of them. An alarm when the record ends with one, else a warning.
    """
    flags = ~np.isfinite(curve.values)
    joined: list[tuple[int, int]] = []
    for first, last in stretches(flags):
        if joined and first - joined[-1][1] <= _JOINED_ROWS:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return [_finding(curve, measure, first, last) for first, last in joined]


def _finding(curve: Curve, measure: str, first: int, last: int) -> Finding:
    before = curve.values[max(0, first - 32) : first]
    before = before[np.isfinite(before)]
    step = int(curve.steps[first])
    return Finding(
        kind="nan",
        severity="alarm" if last == curve.steps.size - 1 else "warning",
        first_step=step,
        last_step=int(curve.steps[last]),
        confidence=0.99,
        evidence=(
            Evidence(measure=measure, expected=float(np.median(before)) if before.size else None,
                     observed=spelled(float(curve.values[first])), step=step),
        ),
        remedy=remedy("skip_samples", step=step),
    )  # fmt: skip
