"""A loss that climbs little by little, so that no single step stands out."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.excursion import first_below
from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.loss_spike import DIVERGED, LEAST_DEVIATION
from stoker.diagnosis.recent_past import (
    DEVIATIONS,
    Curve,
    Numbers,
    deviation,
    past_deviation,
    rolling_median,
    shifted,
    window_of,
)
from stoker.diagnosis.remedies import remedy

_LEAST_RISE = float(np.log(1.05))
_NOTABLE_RISE = float(np.log(1.1))
_STEEP_SHARE = 0.6
"""Of the rise within two windows: it is a step."""


def find_slow_rise(loss: Curve) -> list[Finding]:
    """Stretches where the smoothed `loss`, from which spikes have been taken, stays above the lowest it has
    been.

    Smoothed is the median of a window (32 rows) of the logarithm. Its own wandering is known from the changes
    from one window to the next over the past sixteen, or from the changes of these where the curve still falls;
    a rise counts when it exceeds 8 of their deviations, and a twentieth of the loss, over at least a window.
    When most of it came within two windows it is a step up, else a divergence.
    """
    curve = loss.positive
    if curve.steps.size < 12:
        return []
    logs = np.log(curve.values)
    window = window_of(logs.size)
    smooth = rolling_median(logs, window, window)
    changes = smooth - shifted(smooth, window)
    turns = (changes - shifted(changes, window)) / np.sqrt(3)
    past = 16 * window
    wander = shifted(np.fmin(past_deviation(changes, past)[1], past_deviation(turns, past)[1]), window)
    limit = np.maximum(DEVIATIONS * np.fmax(wander, LEAST_DEVIATION / 4), _LEAST_RISE)
    lowest = np.fmin.accumulate(smooth)
    above = np.flatnonzero(np.nan_to_num(smooth - lowest, nan=-np.inf) > np.nan_to_num(limit, nan=np.inf))
    found: list[Finding] = []
    at = 0
    while at < above.size:
        first = int(above[at])
        # The limit from before the rise holds all through it.
        back = first_below(smooth, first, float(lowest[first] + limit[first] / 2))
        last = (logs.size if back is None else back) - 1
        if last - first + 1 >= window:
            found.append(_finding(curve, logs, smooth, limit, first, last, window))
        at = int(np.searchsorted(above, last + 1))
    return found


def _onset(logs: Numbers, low: float, begin: int, noticed: int) -> int:
    """After the lowest row: where the sum of what exceeds the level before by more than noise grows for good."""
    begin += int(np.argmin(logs[begin : noticed + 1]))
    rows = logs[begin : noticed + 1]
    slack = max(deviation(np.diff(rows)) / 3, LEAST_DEVIATION / 4)
    return min(begin + int(np.argmin(np.cumsum(rows - low - slack))) + 1, noticed)


def stretches(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """The stretches of rows that are true, both ends included."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    return list(zip(np.flatnonzero(edges == 1).tolist(), (np.flatnonzero(edges == -1) - 1).tolist(), strict=True))


def _finding(
    curve: Curve, logs: Numbers, smooth: Numbers, limit: Numbers, noticed: int, last: int, window: int
) -> Finding:
    begin = int(np.nanargmin(smooth[: noticed + 1]))
    low, high = float(smooth[begin]), float(np.nanmax(smooth[noticed : last + 1]))
    end_of_step = min(begin + 3 * window, last)
    is_step = smooth[end_of_step] - low > _STEEP_SHARE * (high - low)
    lasts = last == smooth.size - 1
    rise = float(smooth[last] - low) if lasts else high - low
    severity: Severity = "note"
    if lasts and rise > _NOTABLE_RISE:
        severity = "alarm" if rise > DIVERGED else "warning"
    elif high - low > DIVERGED:
        severity = "warning"
    peak = noticed + int(np.nanargmax(smooth[noticed : last + 1]))
    first = int(curve.steps[_onset(logs, low, max(0, begin - window), noticed)])
    return Finding(
        kind="step_rise" if is_step and rise < DIVERGED else "divergence",
        severity=severity,
        first_step=first,
        last_step=int(curve.steps[last]),
        confidence=confidence_of(high - low, float(limit[noticed])),
        evidence=(
            Evidence(measure="smoothed loss", expected=float(np.exp(low)), observed=float(np.exp(high)),
                     step=int(curve.steps[peak])),
        ),
        remedy=remedy("check_mixture" if is_step else "roll_back", step=first),
    )  # fmt: skip
