"""Attention logits that grow faster than they did: long before the loss moves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import TO_DEVIATIONS, Curve, Numbers
from stoker.diagnosis.remedies import remedy

_PAST = 12
"""Rows of the statistic that say how it usually goes on."""
_FEWEST_PAST = 5
_IN_A_ROW = 3
_DEVIATIONS = 6.0
_LEAST = float(np.log(1.25))
_LEAST_DEVIATION = 0.02
_EARLY_SHARE = 0.1
_FASTER = 3.0


def find_logit_growth(logits: Mapping[str, Curve], entropies: Mapping[str, Curve]) -> list[Finding]:
    """Parts of the model whose largest attention logit grows by three rows in a row to far above the line through
    its past: a quarter more, and 6 deviations around that line, at three times its slope or more.

    Statistics are of every few steps; a row is one of them. One finding tells of all parts, and of the one that
    grew most.
    """
    grown = {}
    for module, logit in logits.items():
        curve = logit.positive
        seen = _noticed(np.log(curve.values))
        if seen is not None:
            grown[module] = (curve, *seen)
    if not grown:
        return []
    begun = min(int(curve.steps[first]) for curve, first, *_ in grown.values())
    most = max(grown, key=lambda module: grown[module][4])
    curve, first, at, expected, excess, limit = grown[most]
    last = int(curve.steps[-1])
    evidence = [
        Evidence(measure=f"largest attention logit of {most}", expected=float(np.exp(expected)),
                 observed=float(curve.values[at]), step=int(curve.steps[at]))
    ]  # fmt: skip
    highest = at + int(curve.values[at:].argmax())
    if highest > at:
        evidence.append(
            Evidence(measure=f"largest attention logit of {most}, at its highest", expected=float(np.exp(expected)),
                     observed=float(curve.values[highest]), step=int(curve.steps[highest]))
        )  # fmt: skip
    evidence += _of_entropy(entropies.get(most), most, int(curve.steps[first]))
    return [
        Finding(
            kind="logit_growth",
            severity="warning",
            first_step=begun,
            last_step=last,
            confidence=confidence_of(excess, limit),
            evidence=tuple(evidence),
            remedy=remedy("limit_logits", step=begun),
        )
    ]


def _noticed(logs: Numbers) -> tuple[int, int, float, float, float] | None:
    """(row it began at, row it stands out at, expected, excess, limit); None where it does not."""
    rows = np.arange(logs.size, dtype=np.float64)
    for at in range(max(_FEWEST_PAST + _IN_A_ROW, int(_EARLY_SHARE * logs.size)), logs.size):
        recent = logs[at - _IN_A_ROW : at + 1]
        if not (np.diff(recent) > 0).all():
            continue
        past = slice(max(0, at - _IN_A_ROW - _PAST), at - _IN_A_ROW + 1)
        slope, level = np.polyfit(rows[past], logs[past], 1)
        residuals = logs[past] - (slope * rows[past] + level)
        spread = max(TO_DEVIATIONS * float(np.median(np.abs(residuals))), float(residuals.std()), _LEAST_DEVIATION)
        expected = max(float(slope) * at + float(level), float(np.median(logs[past])))
        excess, limit = float(logs[at] - expected), max(_DEVIATIONS * spread, _LEAST)
        faster = (recent[-1] - recent[0]) / _IN_A_ROW > _FASTER * max(float(slope), spread / _PAST)
        if excess > limit and faster:
            first = at - _IN_A_ROW
            while first > 0 and logs[first] - (slope * first + level) > 2 * spread:
                first -= 1
            return min(first + 1, at), at, expected, excess, limit
    return None


def _of_entropy(entropy: Curve | None, module: str, step: int) -> list[Evidence]:
    if entropy is None:
        return []
    curve = entropy.finite
    at = int(np.searchsorted(curve.steps, step))
    if not 0 < at < curve.steps.size:
        return []
    lowest = at + int(np.argmin(curve.values[at:]))
    return [
        Evidence(measure=f"attention entropy of {module}, over the uniform's",
                 expected=float(np.median(curve.values[max(0, at - _PAST) : at])),
                 observed=float(curve.values[lowest]), step=int(curve.steps[lowest]))
    ]  # fmt: skip
