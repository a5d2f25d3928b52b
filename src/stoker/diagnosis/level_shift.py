"""Where the level of a curve changes from one window of rows to the next, and stays changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stoker.diagnosis.recent_past import DEVIATIONS, Numbers, past_deviation, rolling_median, shifted, window_of


class Shift(NamedTuple):
    """A change of level at row `at`, the first of the new level."""

    at: int
    before: float
    after: float
    limit: float


def level_shifts(logs: Numbers, least: float, least_deviation: float, *, detrend: bool) -> list[Shift]:
    """Changes of level of `logs` [rows, all finite], up and down, in order.

    The change at a row is the median of the window (32 rows) from it on, less that of the window before it: what is
    shorter than half a window moves neither. It counts when it is more than 8 deviations of such changes over the
    eight windows before, and more than `least`. With `detrend`, only what it exceeds its neighbours by, a window
    before and after, in its own direction: the fall of a loss is no step.
    """
    window = window_of(logs.size)
    if logs.size < 3 * window:
        return []
    medians = rolling_median(logs, window, window)
    before, after = shifted(medians, 1), shifted(medians, 1 - window)
    changes = after - before
    excess = spread_of = changes
    if detrend:
        earlier, later = shifted(changes, window), shifted(changes, -window)
        upwards = changes - np.fmax(np.fmax(earlier, later), 0)
        downwards = changes - np.fmin(np.fmin(earlier, later), 0)
        spread_of = np.where(changes > 0, upwards, downwards)
        # What exceeds its neighbours the other way is their change.
        excess = np.where(changes > 0, np.maximum(upwards, 0), np.minimum(downwards, 0))
    spread = shifted(past_deviation(spread_of, 8 * window, window)[1], window)
    limit = np.maximum(DEVIATIONS * np.fmax(spread, least_deviation), least)
    size = np.where(np.isfinite(limit), np.nan_to_num(np.abs(excess)), 0.0)
    strong = np.flatnonzero(size > np.nan_to_num(limit, nan=np.inf))
    found: list[Shift] = []
    while strong.size:
        # The first run of strong rows is one change; it lies where the change is largest.
        near = strong[strong < strong[0] + 2 * window]
        at = int(near[np.argmax(size[near])])
        if min(at, logs.size - at) >= window:
            found.append(
                Shift(
                    _edge(logs, at, window, float(before[at]), float(after[at])),
                    float(before[at]),
                    float(after[at]),
                    float(limit[at]),
                )
            )
        strong = strong[strong > at + window]
    return found


def _edge(logs: Numbers, at: int, window: int, before: float, after: float) -> int:
    """The row within a window of `at` that best parts rows near the level before from rows near the one after."""
    begin = max(0, at - window)
    size = abs(after - before)
    nearer = np.clip(np.sign(after - before) * (logs[begin : at + window] - (before + after) / 2), -size, size)
    return min(begin + int(np.argmin(np.cumsum(nearer))) + 1, logs.size - 1)
