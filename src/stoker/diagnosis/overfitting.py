"""Held-out loss that rises while the training loss goes on falling."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Curve, deviation
from stoker.diagnosis.remedies import remedy

_FEWEST_AFTER = 3
_LEAST_RISE = float(np.log(1.01))
_NOTABLE_RISE = float(np.log(1.03))
_DEVIATIONS = 4.0
_TRAINING_ROWS = 64


def find_overfitting(held_out: Curve, training: Curve, source: str) -> list[Finding]:
    """Whether the held-out loss of `source` has been above its lowest for the last three evaluations or more.

    The last has to be 1% above it and 4 deviations of its noise, known from second differences, and the median
    training loss of the rows up to it lower than of those up to the lowest. A warning from 3% on.
    """
    curve, trained = held_out.positive, training.positive
    if curve.steps.size < _FEWEST_AFTER + 2:
        return []
    logs = np.log(curve.values)
    best = int(np.argmin(logs))
    after = logs[best + 1 :]
    if after.size < _FEWEST_AFTER:
        return []
    rise = float(np.median(after[-_FEWEST_AFTER:]) - logs[best])
    limit = max(_LEAST_RISE, _DEVIATIONS * deviation(np.diff(logs, 2)) / np.sqrt(6))
    then, now = _level_at(trained, int(curve.steps[best])), _level_at(trained, int(curve.steps[-1]))
    if rise <= limit or not now < then:
        return []
    step, last = int(curve.steps[best]), int(curve.steps[-1])
    return [
        Finding(
            kind="overfitting",
            severity="warning" if rise > _NOTABLE_RISE else "note",
            first_step=step,
            last_step=last,
            sources=(source,),
            confidence=confidence_of(rise, limit),
            evidence=(
                Evidence(measure=f"held-out loss of {source}", expected=float(curve.values[best]),
                         observed=float(curve.values[-1]), step=last),
                Evidence(measure="training loss meanwhile", expected=then, observed=now, step=last),
            ),
            remedy=remedy("stop_or_add_data", step=step),
        )
    ]  # fmt: skip


def _level_at(training: Curve, step: int) -> float:
    """Median training loss of the rows up to `step`; NaN without any."""
    end = int(np.searchsorted(training.steps, step, side="right"))
    values = training.values[max(0, end - _TRAINING_ROWS) : end]
    return float(np.median(values)) if values.size else float("nan")
