"""Gradients that grow before the loss moves: the warning that comes before many a spike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stoker.diagnosis.excursion import Excursion, excursions
from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.recent_past import Curve, Numbers, usual, window_of
from stoker.diagnosis.remedies import remedy

_LEAST_DEVIATION = 0.05
_LEAST = float(np.log(3.0))
_FEWEST_ROWS = 3
"""A single large gradient is its batch's; several in a row are the weights'."""
_STRONG = float(np.log(10.0))
_STRONG_ROWS = 2
_LASTING_ROWS = 8
_EARLY_SHARE = 0.02
_EARLY_ROWS = 16


def find_gradient_growth(norm: Curve, loss_moved: Sequence[tuple[int, int]] | None = None) -> list[Finding]:
    """Stretches of rows whose gradient norm is over three times its recent median and 8 deviations of its
    logarithm.

    At least three rows in a row, or two with ten times the median; a warning from eight rows, or ten times, on.
    `loss_moved` are the first and last steps of what stands out of the loss: a growth that came back and after
    which nothing does, within a window of rows, was a note's worth. Not in the first rows, in which a model's
    gradients go through their largest changes.
    """
    curve = norm.positive
    logs = np.log(curve.values)
    past = usual(logs, _LEAST_DEVIATION, _LEAST)
    found = []
    for one in excursions(logs, past):
        rise = logs[one.first : one.last + 1] - one.expected
        strong = int(np.count_nonzero(rise > _STRONG))
        many = int(np.count_nonzero(rise > one.limit / 2)) >= _FEWEST_ROWS
        if (many or strong >= _STRONG_ROWS) and not _early(curve, one):
            end = int(curve.steps[min(one.last + window_of(logs.size), logs.size - 1)])
            harmless = (
                loss_moved is not None
                and one.recovered is not None
                and not any(first <= end and last >= curve.steps[one.first] for first, last in loss_moved)
            )
            found.append(_finding(curve, logs, one, strong, harmless))
    return found


def _early(curve: Curve, one: Excursion) -> bool:
    """In the first rows of a run that the record has from its beginning."""
    if curve.steps.size < 4 * _EARLY_ROWS:
        return False
    return one.first < max(_EARLY_ROWS, _EARLY_SHARE * curve.steps.size)


def _finding(curve: Curve, logs: Numbers, one: Excursion, strong: int, harmless: bool) -> Finding:
    steps, values = curve
    step = int(steps[one.first])
    large = strong >= _STRONG_ROWS or one.rows >= _LASTING_ROWS
    severity: Severity = "warning" if large and not harmless else "note"
    seen = [("gradient norm", one.first)] + ([("largest gradient norm", one.peak)] if one.peak > one.first else [])
    return Finding(
        kind="gradient_growth",
        severity=severity,
        first_step=step,
        last_step=int(steps[one.last]),
        confidence=confidence_of(float(logs[one.peak] - one.expected), one.limit),
        evidence=tuple(
            Evidence(measure=measure, expected=float(np.exp(one.expected)), observed=float(values[row]),
                     step=int(steps[row]))
            for measure, row in seen
        ),
        remedy=remedy("clip_or_lower_rate", step=step),
    )  # fmt: skip
