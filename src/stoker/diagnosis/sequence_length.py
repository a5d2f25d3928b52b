"""Sequences that become longer or shorter in the middle of a run."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding
from stoker.diagnosis.recent_past import Numbers, Steps
from stoker.diagnosis.remedies import remedy

_FACTOR = 1.15
"""Tokens of a sequence that count differ by less: documents end, and rows are padded."""
_PAST = 16
_FEWEST_PAST = 4
_RECORDED = 0.97


def find_sequence_length_changes(steps: Steps, tokens: Numbers, samples: Numbers) -> list[Finding]:
    """Rows from which on a sample has more or fewer tokens by 15% or more than the rows before.

    `tokens`, `samples` [rows] of a step. A change lasts until the length changes once more. A note: a recipe may
    have meant it, and what follows from it in loss and time is no fault.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        each = tokens / samples
    kept = np.isfinite(each) & (each > 0)
    steps, each = steps[kept], each[kept]
    logs = np.log(each)
    far = np.abs(np.diff(logs)) > np.log(_FACTOR)
    found = []
    for row in (np.flatnonzero(far) + 1).tolist():
        before, after = logs[max(0, row - _PAST) : row], logs[row : row + 2]
        if row < _FEWEST_PAST or after.size < 2:
            continue
        # The levels differ, and neither side's own rows differ so much.
        near = max(float(np.ptp(before[-_FEWEST_PAST:])), float(np.ptp(after)))
        if near < np.log(_FACTOR) / 2:
            following = np.flatnonzero(far[row:])
            last = row + int(following[0]) if following.size else steps.size - 1
            found.append(_finding(steps, each, row, last))
    return found


def _finding(steps: Steps, each: Numbers, row: int, last: int) -> Finding:
    step = int(steps[row])
    return Finding(
        kind="sequence_length_change",
        severity="note",
        first_step=step,
        last_step=int(steps[last]),
        confidence=_RECORDED,
        evidence=(
            Evidence(measure="tokens of a sample", expected=float(np.median(each[max(0, row - _PAST) : row])),
                     observed=float(each[row]), step=step),
        ),
        remedy=remedy("check_length", step=step),
    )  # fmt: skip
