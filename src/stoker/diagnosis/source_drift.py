"""A source whose loss moves apart from the others'."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.level_shift import level_shifts
from stoker.diagnosis.recent_past import Curve, Numbers, window_of
from stoker.diagnosis.remedies import remedy

_LEAST_DEVIATION = 0.01
_LEAST = float(np.log(1.05))
_NOTABLE = float(np.log(1.1))
_BEYOND = 1.5
"""Times its limit, from which on a change is more than what one of several sources does once in a long run."""
_EARLY_SHARE = 0.1
_PAST_WINDOWS = 5
"""That have to lie before a warning: how far a source wanders by itself is known only then."""


def find_source_drift(steps: Curve, by_source: Mapping[str, Numbers]) -> list[Finding]:
    """Changes of level of each source's loss against the median of all (of two: the other's), in logarithms
    (`level_shift`).

    `by_source` [rows] is NaN where a row has no token of the source; rows with fewer than three sources are
    left out where there are more. The first tenth of its rows is left out: sources are learnt at different
    speeds. A warning when the source rose by a tenth or more against the others, by half more than the limit of
    such changes, with five windows before it.
    """
    if len(by_source) < 2:
        return []
    logs = np.stack([_logs(values) for values in by_source.values()])
    found = []
    for row, name in enumerate(by_source):
        # The median of three or more is not moved by one of them; of two, the other is what there is.
        others = logs if len(by_source) > 2 else np.delete(logs, row, axis=0)
        enough = np.count_nonzero(np.isfinite(others), axis=0) >= min(len(others), 3)
        known = np.isfinite(logs[row]) & enough
        apart = logs[row, known] - np.nanmedian(others[:, known], axis=0)
        for shift in level_shifts(apart, _LEAST, _LEAST_DEVIATION, detrend=True):
            if shift.at < _EARLY_SHARE * apart.size:
                continue
            change = shift.after - shift.before
            at = int(np.flatnonzero(known)[shift.at])
            known_past = shift.at >= _PAST_WINDOWS * window_of(apart.size)
            notable = change > max(_NOTABLE, _BEYOND * shift.limit) and known_past
            severity: Severity = "warning" if notable else "note"
            step = int(steps.steps[at])
            found.append(
                Finding(
                    kind="source_drift",
                    severity=severity,
                    first_step=step,
                    last_step=step,
                    sources=(name,),
                    confidence=confidence_of(abs(change), shift.limit),
                    evidence=(
                        Evidence(measure=f"loss of {name} over that of the other sources",
                                 expected=float(np.exp(shift.before)), observed=float(np.exp(shift.after)),
                                 step=step),
                    ),
                    remedy=remedy("check_mixture", step=step),
                )
            )  # fmt: skip
    return _without_mirror(found) if len(by_source) == 2 else found


def _logs(values: Numbers) -> Numbers:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.isfinite(values) & (values > 0), np.log(values), np.nan)


def _without_mirror(found: list[Finding]) -> list[Finding]:
    """Of two sources one's rise is the other's fall: the rise is kept, its own curve says more."""
    rises = [one for one in found if _rises(one)]
    return rises or found[:1]


def _rises(finding: Finding) -> bool:
    expected, observed = finding.evidence[0].expected, finding.evidence[0].observed
    return isinstance(expected, float) and isinstance(observed, float) and observed > expected
