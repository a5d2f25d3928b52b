"""Mixture-of-experts blocks in which a few experts get the tokens of all."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.recent_past import Curve, Mask, Numbers, deviation, rolling_median, window_of
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.slow_rise import stretches

_LEAST_LARGEST = 2.5
_MOST_SMALLEST = 0.1
_TIMES_PAST = 1.5
_FEWEST_ROWS = 5
_EARLY_SHARE, _EARLY_ROWS = 0.05, 32
_SETTLING_ROWS = 64
_PAST = 32
_BRIEF_ROWS = _PAST
"""A router that is back within as many rows as it is judged by has found its place itself."""
_GROWN, _STARVED = float(np.log(1.25)), 0.6
"""Of the past's, by which the busiest expert's load has grown and to which the idlest's has fallen, on the way
there."""
_DEVIATIONS = 6.0


def find_router_collapse(largest: Curve, smallest: Numbers, module: str) -> list[Finding]:
    """Stretches in which the busiest expert of a block gets 2.5 times the mean load or more and the idlest
    under 0.1, or in which loads are on the way there.

    Loads are medians of a window of rows. It has to be 1.5 times the lowest such median of the run's past too,
    unless it was so from the beginning; the first twentieth of the rows, and 32 of them, before routers have
    settled, do not count. An alarm while it lasts; a note where it has passed within 32 rows, or began in the first
    64. On the way it is a warning: the busiest has a quarter more than in the window before (32 rows), beyond 6
    deviations, and the idlest less than six tenths.
    """
    rows = largest.values.size
    if rows < 2 * _FEWEST_ROWS:
        return []
    window = min(window_of(rows), _FEWEST_ROWS)
    high, low = rolling_median(largest.values, window), rolling_median(smallest, window)
    begin = max(int(_EARLY_SHARE * rows), min(_EARLY_ROWS, rows // 4))
    best = np.fmin.accumulate(high)
    uneven = (high > _LEAST_LARGEST) & (low < _MOST_SMALLEST) & (np.arange(rows) >= begin)
    worse = uneven & ((high > _TIMES_PAST * best) | (best > _LEAST_LARGEST))
    found = []
    for first, last in stretches(np.asarray(worse | _on_the_way(high, low, begin))):
        if last - first + 1 < _FEWEST_ROWS:
            continue
        collapsed = int(np.count_nonzero(worse[first : last + 1])) >= _FEWEST_ROWS
        onset, lasts = max(first - window // 2, 0), last == rows - 1
        peak = first + int(np.argmax(high[first : last + 1]))
        step, at = int(largest.steps[onset]), int(largest.steps[peak])
        of = f"expert of {module}, over the mean"
        found.append(
            Finding(
                kind="router_collapse",
                severity=_severity(collapsed, lasts, first < _SETTLING_ROWS or last - first < _BRIEF_ROWS),
                first_step=step,
                last_step=int(largest.steps[last]),
                confidence=confidence_of(float(high[peak]), _LEAST_LARGEST if collapsed else float(best[first])),
                evidence=(
                    Evidence(
                        measure=f"load of the busiest {of}",
                        expected=float(best[first]),
                        observed=float(high[peak]),
                        step=at,
                    ),
                    Evidence(measure=f"load of the idlest {of}", expected=None, observed=float(low[peak]), step=at),
                ),
                remedy=remedy("balance_experts", step=step),
            )
        )
    return found


def _severity(collapsed: bool, lasts: bool, harmless: bool) -> Severity:
    """A router that found its place after all, in the beginning of a run or soon, needs nobody."""
    if lasts:
        return "alarm" if collapsed else "warning"
    return "note" if harmless else "warning"


def _on_the_way(high: Numbers, low: Numbers, begin: int) -> Mask:
    """Rows whose loads are far from their past, which is held while they are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(high)
    away = np.zeros(high.size, dtype=bool)
    row = max(begin, 2 * _FEWEST_ROWS)
    while row < high.size:
        past = slice(max(0, row - _PAST - _FEWEST_ROWS), row - _FEWEST_ROWS)
        usual, idlest = float(np.nanmedian(logs[past])), float(np.nanmedian(low[past]))
        limit = max(_GROWN, _DEVIATIONS * deviation(logs[past]))
        if not (logs[row] - usual > limit and low[row] < _STARVED * idlest):
            row += 1
            continue
        back = np.flatnonzero(~((logs[row:] - usual > limit / 2) & (low[row:] < _STARVED * idlest)))
        end = row + int(back[0]) if back.size else high.size
        away[row:end] = True
        row = end + _FEWEST_ROWS
    return away
