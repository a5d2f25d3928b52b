"""Stretches without progress: rows that came much later than the steps between them take."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding
from stoker.diagnosis.recent_past import Curve, Numbers, Steps, rolling_median, shifted
from stoker.diagnosis.remedies import remedy

_TIMES_USUAL = 10.0
_LEAST_SECONDS = 30.0
_NOTABLE_TIMES, _NOTABLE_SECONDS = 30.0, 120.0


def find_stalls(times: Curve, known_seconds: Numbers, attempts: Numbers, now: float | None) -> list[Finding]:
    """Gaps between rows of ten times the usual time of their steps, and 30 seconds, or more.

    `times` [rows] are Unix times of one rank's clock; `known_seconds` [rows] what evaluation and saving took
    before each row, which is no stall; `attempts` [rows] numbers of starts: a gap between two of them is a
    note, since what happened then is told by events. `now` is given for a run that is under way: then the time
    since its last row counts too. A clock that was set back makes no gap.
    """
    curve = times.finite
    if curve.steps.size < 4:
        return []
    kept = np.isfinite(times.values)
    gaps = np.diff(curve.values) - np.nan_to_num(known_seconds[kept][1:])
    steps = np.maximum(np.diff(curve.steps), 1)
    usual = shifted(rolling_median(gaps / steps, 32), 1)
    expected = usual * steps
    long = (gaps > _TIMES_USUAL * expected) & (gaps > _LEAST_SECONDS)
    restarted = np.diff(np.nan_to_num(attempts[kept])) != 0
    found = [
        _finding(curve.steps, row, float(expected[row]), float(gaps[row]), bool(restarted[row]))
        for row in np.flatnonzero(long).tolist()
    ]
    last = float(np.median(gaps[-32:] / steps[-32:]))
    if now is not None and now - curve.values[-1] > max(_TIMES_USUAL * last, _LEAST_SECONDS):
        found.append(_still(int(curve.steps[-1]), last, now - float(curve.values[-1])))
    return found


def _finding(steps: Steps, row: int, expected: float, gap: float, restarted: bool) -> Finding:
    first, last = int(steps[row]), int(steps[row + 1])
    notable = gap > _NOTABLE_TIMES * expected and gap > _NOTABLE_SECONDS and not restarted
    return Finding(
        kind="stall",
        severity="warning" if notable else "note",
        first_step=first,
        last_step=last,
        confidence=0.9,
        evidence=(Evidence(measure="seconds until the next row", expected=expected, observed=gap, step=last),),
        remedy=remedy("none"),
    )


def _still(step: int, expected: float, gap: float) -> Finding:
    return Finding(
        kind="stall",
        severity="alarm" if gap > _NOTABLE_TIMES * expected and gap > _NOTABLE_SECONDS else "warning",
        first_step=step,
        last_step=step,
        confidence=0.8,
        evidence=(Evidence(measure="seconds since the last row", expected=expected, observed=gap, step=step),),
        remedy=remedy("check_progress"),
    )
