"""Spikes of the loss that come back, and rises that do not: divergence, or a step up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker.diagnosis.excursion import Excursion, excursions
from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.recent_past import Curve, Numbers, usual
from stoker.diagnosis.remedies import remedy

LEAST_DEVIATION = 0.01
"""Of the loss's logarithm, as in the live rule: where the past hardly varies, less is still nothing."""
LEAST_EXCESS = float(np.log(1.03))
LARGE = float(np.log(1.5))
"""A loss that grew by half has lost much of what was learnt."""
_VERY_LARGE = float(np.log(2.0))
DIVERGED = float(np.log(1.2))
"""Above the usual for good."""
_NOTABLE_RISE = float(np.log(1.1))
LONGEST_SPIKE = 100
"""Rows; what lasts longer is no spike."""
_TOO_EARLY_TO_TELL = 5
"""Rows from the peak on, before it is said that a rise does not come back."""


def find_spikes(loss: Curve, found: Sequence[Excursion] | None = None) -> list[Finding]:
    """Rows whose loss stands out above its recent past (`recent_past.usual`, of the logarithm), as stretches.

    A stretch that came back within 100 rows is a spike: a note, or a warning when the loss grew by half in more
    than one row, or doubled. One that did not is a divergence when the loss stayed up by a fifth or goes on
    growing, else a step up. A divergence that lasts is an alarm.
    """
    curve = loss.positive
    logs = np.log(curve.values)
    return [_finding(curve, logs, one) for one in (loss_excursions(loss) if found is None else found)]


def loss_excursions(loss: Curve) -> list[Excursion]:
    """Stretches of the loss's positive rows that stand out."""
    logs = np.log(loss.positive.values)
    return excursions(logs, usual(logs, LEAST_DEVIATION, LEAST_EXCESS))


def without_spikes(loss: Curve, found: Sequence[Excursion] | None = None) -> Curve:
    """The positive rows, with what was usual in place of what came back soon: for detectors of what lasts."""
    curve = loss.positive
    values = curve.values.copy()
    for one in loss_excursions(loss) if found is None else found:
        if _is_spike(one):
            values[one.first : one.last + 1] = np.exp(one.expected)
    return Curve(curve.steps, values)


def _is_spike(one: Excursion) -> bool:
    return one.recovered is not None and one.rows <= LONGEST_SPIKE


def _finding(curve: Curve, logs: Numbers, one: Excursion) -> Finding:
    steps, values = curve
    rise = float(logs[one.peak] - one.expected)
    evidence = [Evidence(measure="loss", expected=_linear(one.expected), observed=float(values[one.first]),
                         step=int(steps[one.first]))]  # fmt: skip
    if one.peak != one.first:
        evidence.append(
            Evidence(measure="loss at its peak", expected=_linear(one.expected), observed=float(values[one.peak]),
                     step=int(steps[one.peak]))
        )  # fmt: skip
    if one.recovered is not None:
        evidence.append(
            Evidence(measure="loss when it had recovered", expected=_linear(one.expected),
                     observed=float(values[one.recovered]), step=int(steps[one.recovered]))
        )  # fmt: skip
    first, last = int(steps[one.first]), int(steps[one.last])
    shared = {"first_step": first, "last_step": last, "evidence": tuple(evidence),
              "confidence": confidence_of(rise, one.limit)}  # fmt: skip
    if _is_spike(one):
        severe = _is_severe(logs, one, rise)
        severity: Severity = "warning" if severe else "note"
        todo = remedy("skip_samples" if severe else "none", **({"step": first} if severe else {}))
        return Finding(kind="spike", severity=severity, remedy=todo, **shared)
    return _lasting(curve, logs, one, shared)


def _is_severe(logs: Numbers, one: Excursion, rise: float) -> bool:
    """A single row may be its documents'; several are the weights'."""
    raised = int(np.count_nonzero(logs[one.first : one.last + 1] - one.expected > LARGE / 2))
    return (rise > LARGE and raised > 1) or (rise > _VERY_LARGE and rise > 6 * one.limit)


def _lasting(curve: Curve, logs: Numbers, one: Excursion, shared: dict[str, Any]) -> Finding:
    """It has not come back, or only after long."""
    after = logs[one.noticed : one.last + 1]
    level = float(np.median(after[-min(32, max(_TOO_EARLY_TO_TELL, after.size // 2)) :]) - one.expected)
    middle = float(np.median(after) - one.expected)
    if one.recovered is None and curve.steps.size - one.peak < _TOO_EARLY_TO_TELL and after.size < LONGEST_SPIKE:
        growing = after.size >= _TOO_EARLY_TO_TELL
        return Finding(
            kind="divergence" if growing else "spike",
            severity="alarm" if growing and level > DIVERGED else "warning",
            remedy=remedy(
                "roll_back" if growing else "watch", **({"step": shared["first_step"]} if growing else {})
            ),
            **shared,
        )
    if max(level, middle) > DIVERGED:
        severity: Severity = "alarm" if one.recovered is None else "warning"
        return Finding(kind="divergence", severity=severity, remedy=remedy("roll_back", step=shared["first_step"]),
                       **shared)  # fmt: skip
    return Finding(
        kind="step_rise",
        severity="warning" if one.recovered is None and level > _NOTABLE_RISE else "note",
        remedy=remedy("check_mixture", step=shared["first_step"]),
        **shared,
    )


def _linear(log: float) -> float:
    return float(np.exp(log))
