"""Waiting for other ranks that takes now short and now long."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.excursion import excursions
from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.recent_past import Numbers, Usual, past_median, rolling_median, shifted, window_of
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.step_parts import Parts

_TOGETHER = 12
_LEAST = 0.08
"""Of a step, between one step's waiting and the next one's."""
_TIMES = 3.0
_NOTABLE = 0.3
_PAST_WINDOWS = 2


def find_jitter(of_ranks: dict[int, Parts]) -> list[Finding]:
    """Stretches of twelve rows whose waiting differs from row to row by three times as much as it did, and by 8% of
    a step.

    Of the rank that waits least from row to row, since the others wait for it too; `of_ranks` holds two or more.
    """
    waits = {rank: own for rank, own in of_ranks.items() if "communication" in own.parts}
    if len(waits) < 2:
        return []
    rank = min(waits, key=lambda one: float(np.median(np.nan_to_num(waits[one].parts["communication"]))))
    own = waits[rank]
    if own.steps.size < 3 * _TOGETHER:
        return []
    spread = _spread(own)
    window = 4 * window_of(own.steps.size)
    expected = shifted(past_median(spread, window, _TOGETHER), _TOGETHER)
    limit = np.maximum((_TIMES - 1) * expected, _LEAST)
    known = np.isfinite(expected)
    usual = Usual(np.nan_to_num(expected), np.where(known, limit, np.inf))
    found = []
    for one in excursions(np.nan_to_num(spread), usual):
        if one.rows < _TOGETHER // 2:
            continue
        first = max(0, one.noticed - _TOGETHER // 2)
        step, last = int(own.steps[first]), int(own.steps[one.last])
        seen = float(spread[one.peak])
        notable = (
            seen > _NOTABLE and one.rows >= 2 * _TOGETHER and one.first >= _PAST_WINDOWS * window_of(own.steps.size)
        )
        severity: Severity = "warning" if notable else "note"
        found.append(
            Finding(
                kind="jitter",
                part="communication",
                severity=severity,
                first_step=step,
                last_step=last,
                confidence=confidence_of(seen - one.expected, one.limit),
                evidence=(
                    Evidence(measure="difference of a step's waiting for other ranks from the next one's, in steps",
                             expected=one.expected, observed=seen, step=step),
                ),
                remedy=remedy("check_network", step=step),
            )
        )  # fmt: skip
    return found


def _spread(own: Parts) -> Numbers:
    """Median difference from row to row over twelve rows, in usual steps."""
    step = shifted(past_median(own.total, 8 * window_of(own.total.size)), 1)
    waited = np.nan_to_num(own.parts["communication"]) / np.where(step > 0, step, np.nan)
    return rolling_median(np.abs(np.diff(waited, prepend=waited[:1])), _TOGETHER, _TOGETHER // 2)
