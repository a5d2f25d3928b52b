"""The scale of the gradients changing at once, in all parts of the model alike, while the loss does not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.recent_past import (
    TO_DEVIATIONS,
    Curve,
    Numbers,
    past_median,
    rolling_median,
    shifted,
    window_of,
)
from stoker.diagnosis.remedies import remedy

_AFTER = 8
"""Rows that the new scale has to last."""
_DEVIATIONS = 6.0
_LEAST, _NOTABLE = float(np.log(1.5)), float(np.log(1.8))
_LEAST_DEVIATION = 0.03
_OF_MODULES = 3
"""Rows on either side, of modules' norms: they are recorded every few steps, over which each learns at its pace."""
_SUDDEN_SHARE = 0.6
"""Of the change, that lies between the rows next to it: what comes over many rows is learning."""
_ON_ITS_SIDE = 0.85
"""Of the sixteen rows before and the sixteen after."""
_MOST_TREND = 0.35
"""Of the change, by which the eight rows before it differ from the eight before those."""
_AT_LEAST = 0.25
"""Of the change, that each module shows: what one part has nothing of is no other scale."""
_ALIKE = 0.4
"""Of the change, that modules may differ by."""
_OF_MEDIANS = 0.4
"""Of the deviation of differences from row to row: that of medians of eight rows, with some room."""


def find_gradient_shifts(norm: Curve, by_module: Mapping[str, Curve]) -> list[Finding]:
    """Rows at which the median of eight rows' gradient norms differs by half or more, and 6 deviations of such
    changes, from that of the window before (32 rows).

    A note; a warning where all modules show it. It changes from one row to the next and, where they were recorded,
    in all modules by about the same factor. Not in the first rows.
    """
    curve = norm.positive
    logs = np.log(curve.values)
    window = window_of(logs.size)
    if logs.size < window + 2 * _AFTER:
        return []
    before = shifted(rolling_median(logs, window, min(window, _AFTER)), 1)
    change = shifted(rolling_median(logs, _AFTER, _AFTER), 1 - _AFTER) - before
    # From row to row: a curve that falls would make its own changes look usual.
    noise = shifted(past_median(np.abs(np.diff(logs, prepend=logs[:1])), 2 * window, _AFTER), 1) * TO_DEVIATIONS
    limit = np.maximum(_DEVIATIONS * np.fmax(_OF_MEDIANS * noise, _LEAST_DEVIATION), _LEAST)
    size = np.abs(np.nan_to_num(change))
    strong = np.flatnonzero((size > limit) & (np.arange(size.size) >= 2 * window))
    found = []
    while strong.size:
        near = strong[strong < strong[0] + 2 * _AFTER]
        at = int(near[np.argmax(size[near])])
        edge = _edge(logs, int(near[0]), float(before[at]), float(change[at]))
        if _is_sudden(logs, edge, float(before[at]), float(change[at])) and _is_alike(
            curve, edge, float(change[at]), by_module
        ):
            found.append(_finding(curve, edge, float(before[at]), float(change[at]), float(limit[at]), by_module))
            strong = strong[strong > at + window]
        strong = strong[strong > near[-1]]
    return found


def _edge(logs: Numbers, at: int, before: float, change: float) -> int:
    """The row near `at` that best parts rows near the level before from rows near the one after."""
    begin = max(0, at - _AFTER)
    beyond = np.sign(change) * (logs[begin : at + 2 * _AFTER] - before - change / 2)
    return min(begin + int(np.argmin(np.cumsum(np.clip(beyond, -abs(change), abs(change))))) + 1, logs.size - 1)


def _is_sudden(logs: Numbers, at: int, before: float, change: float) -> bool:
    """Whether the rows next to it differ, and those on either side stay on their side of the middle."""
    three_before, three_after = np.median(logs[max(0, at - 3) : at]), np.median(logs[at : at + 3])
    beyond = np.sign(change) * (logs - before - change / 2) > 0
    earlier, later = beyond[max(0, at - 2 * _AFTER) : at], beyond[at : at + 2 * _AFTER]
    long_before = logs[max(0, at - 2 * _AFTER) : max(1, at - _AFTER)]
    trend = abs(float(np.median(logs[max(0, at - _AFTER) : at]) - np.median(long_before)))
    if trend > _MOST_TREND * abs(change):
        return False
    apart = np.mean(np.concatenate([~earlier, later])) > _ON_ITS_SIDE
    return bool(apart and np.sign(change) * (three_after - three_before) > _SUDDEN_SHARE * abs(change))


def _changes(by_module: Mapping[str, Curve], step: int) -> dict[str, float]:
    """By which each module's logarithm changed at `step`."""
    found = {}
    for name, own in by_module.items():
        curve = own.positive
        at = int(np.searchsorted(curve.steps, step))
        before, after = curve.values[max(0, at - _OF_MODULES) : at], curve.values[at : at + _OF_MODULES]
        if before.size and after.size:
            found[name] = float(np.log(np.median(after) / np.median(before)))
    return found


def _is_alike(curve: Curve, at: int, change: float, by_module: Mapping[str, Curve]) -> bool:
    changes = np.array(list(_changes(by_module, int(curve.steps[at])).values()))
    if changes.size < 2:
        return True
    least = float((np.sign(change) * changes).min())
    return bool(np.median(np.abs(changes - change)) < _ALIKE * abs(change) and least > _AT_LEAST * abs(change))


def _finding(
    curve: Curve, at: int, before: float, change: float, limit: float, by_module: Mapping[str, Curve]
) -> Finding:
    step = int(curve.steps[at])
    changes = _changes(by_module, step)
    severity: Severity = "warning" if abs(change) > _NOTABLE and len(changes) > 1 else "note"
    evidence = [
        Evidence(measure="gradient norm over the steps from here on", expected=float(np.exp(before)),
                 observed=float(np.exp(before + change)), step=step)
    ]  # fmt: skip
    if len(changes) > 1:
        least = min(changes, key=lambda name: abs(changes[name]))
        evidence.append(
            Evidence(measure=f"factor by which the gradients of {least} changed, the least of all parts",
                     expected=float(np.exp(change)), observed=float(np.exp(changes[least])), step=step)
        )  # fmt: skip
    return Finding(
        kind="gradient_shift",
        severity=severity,
        first_step=step,
        last_step=int(curve.steps[-1]),
        confidence=confidence_of(abs(change), limit),
        evidence=tuple(evidence),
        remedy=remedy("check_accumulation", step=step),
    )
