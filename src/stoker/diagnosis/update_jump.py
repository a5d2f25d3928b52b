"""Updates that grow at once while the gradients do not: the optimizer's memory is not what it was."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stoker.diagnosis.excursion import Excursion, excursions
from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Curve, Numbers, usual
from stoker.diagnosis.remedies import remedy

_LEAST_DEVIATION = 0.04
_LEAST = float(np.log(1.3))
_OF_GRADIENT = 0.9
"""Updates follow from gradients that grow by as much, or nearly."""
_ROWS_OF_RISE = 2
_EARLY_ROWS = 16


def find_update_jumps(update: Curve, rate: Numbers, gradient: Numbers, resumed: Iterable[int]) -> list[Finding]:
    """Rows whose update norm over the learning rate stands 8 deviations above its past at once, and whose gradient
    norm does not.

    `rate` and `gradient` [rows] belong to the rows of `update`; `resumed` are steps from which an attempt went on.
    Not in the first rows, whose large and shrinking updates are no past to hold others against either.
    """
    kept = np.isfinite(update.values) & (update.values > 0) & np.isfinite(rate) & (rate > 0)
    kept &= np.cumsum(kept) > _EARLY_ROWS
    curve = Curve(update.steps[kept], update.values[kept] / rate[kept])
    logs, norms = np.log(curve.values), gradient[kept]
    starts = sorted(resumed)
    found = []
    for one in excursions(logs, usual(logs, _LEAST_DEVIATION, _LEAST)):
        sudden = one.noticed - one.first < _ROWS_OF_RISE
        if sudden and not _follows_gradient(logs, norms, one):
            found.append(_finding(curve, one, starts))
    return found


def _follows_gradient(logs: Numbers, gradient: Numbers, one: Excursion) -> bool:
    before, now = gradient[max(0, one.first - 32) : one.first], gradient[max(0, one.first - 1) : one.noticed + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        known = np.log(before[np.isfinite(before) & (before > 0)])
        grown = np.log(now[np.isfinite(now) & (now > 0)])
    if not known.size or not grown.size:
        return False
    spread = float(np.std(known))
    rise = float(grown.max() - np.median(known))
    return rise > max(_OF_GRADIENT * float(logs[one.noticed] - one.expected), 3 * spread)


def _finding(curve: Curve, one: Excursion, resumed: list[int]) -> Finding:
    step = int(curve.steps[one.noticed])
    at_resume = next((start for start in resumed if start < step <= start + 2), None)
    evidence = [
        Evidence(measure="update norm over the learning rate", expected=float(np.exp(one.expected)),
                 observed=float(curve.values[one.noticed]), step=step)
    ]  # fmt: skip
    if at_resume is not None:
        measure = "the run went on from a saved state"
        evidence.append(Evidence(measure=measure, expected=None, observed="just before", step=at_resume))
    return Finding(
        kind="update_jump",
        severity="warning",
        first_step=step,
        last_step=int(curve.steps[one.last]),
        confidence=confidence_of(float(np.log(curve.values[one.noticed]) - one.expected), one.limit),
        evidence=tuple(evidence),
        remedy=remedy("check_optimizer_state", step=step),
    )
