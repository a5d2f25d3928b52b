"""The fp16 loss scale falling away, and updates left out."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding
from stoker.diagnosis.recent_past import Curve, Mask, Numbers, rolling_median, shifted, window_of
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.slow_rise import stretches

_COLLAPSE = 64.0
"""Down by this factor from the usual of the past window; halving now and then is what a dynamic scale does."""
_SEARCH_ROWS = 0.02
"""Share of the rows in which a scale that began too high looks for its place."""
_SKIPPED_SHARE = 0.2
_FEWEST_SKIPPED = 5
_NEAR = 8


def find_loss_scale_collapse(scale: Curve) -> list[Finding]:
    """Rows at which the loss scale is 64 times lower than its median over the window before (32 rows).

    Not in the beginning, while it falls from its first value to where it belongs: the scale has to have risen or
    stayed in place for three rows first.
    """
    curve = scale.positive
    settled = _settled(np.log2(curve.values))
    curve = Curve(curve.steps[settled:], curve.values[settled:])
    logs = np.log2(curve.values)
    if logs.size < 4:
        return []
    expected = shifted(rolling_median(logs, window_of(logs.size)), 1)
    low = expected - logs >= np.log2(_COLLAPSE)
    found: list[Finding] = []
    for first, last in stretches(np.asarray(low)):
        back = np.flatnonzero(logs[last:] >= expected[first] - np.log2(_COLLAPSE))
        if found and found[-1].last_step is not None and curve.steps[first] <= found[-1].last_step:
            continue
        last = last + int(back[0]) if back.size else logs.size - 1
        found.append(_collapse(curve, float(2 ** expected[first]), first, last))
    return found


def _settled(logs: Numbers) -> int:
    """The first row from which on the scale has not fallen for three rows."""
    falls = np.concatenate([[False], np.diff(logs) < 0])
    for row in range(2, min(falls.size, max(200, int(_SEARCH_ROWS * falls.size)))):
        if not falls[row - 2 : row + 1].any():
            return row
    return int(falls.size) if falls.size < 4 else 3


def _collapse(curve: Curve, expected: float, first: int, last: int) -> Finding:
    step = int(curve.steps[first])
    lasts = last == curve.steps.size - 1
    return Finding(
        kind="loss_scale_collapse",
        severity="alarm" if lasts else "warning",
        first_step=step,
        last_step=int(curve.steps[last]),
        confidence=0.95,
        evidence=(
            Evidence(measure="loss scale", expected=expected, observed=float(curve.values[first]), step=step),
        ),
        remedy=remedy("use_bf16", step=step),
    )


def find_skipped_steps(skipped: Curve) -> list[Finding]:
    """Stretches in which a fifth of the window's steps or more, and five at least, were left out of the weights.

    `skipped` is 1 for a step whose update was left out, or how many were in a row that stands for several steps.
    The first rows are left out, while an fp16 loss scale looks for its place.
    """
    if skipped.steps.size < 2:
        return []
    window = 32
    steps_of_row = np.diff(skipped.steps, prepend=skipped.steps[0] - max(int(np.median(np.diff(skipped.steps))), 1))
    sums, lengths = np.cumsum(np.nan_to_num(skipped.values)), np.cumsum(steps_of_row)
    recent = sums - shifted(sums, window, 0.0)
    length = lengths - shifted(lengths.astype(np.float64), window, 0.0)
    begun = np.arange(sums.size) >= min(window, sums.size // 4)
    many = (np.nan_to_num(skipped.values) >= _FEWEST_SKIPPED * np.maximum(1, steps_of_row // 32)) | (
        (recent >= _FEWEST_SKIPPED) & (recent >= _SKIPPED_SHARE * length)
    )
    heavy = np.nan_to_num(skipped.values) >= np.maximum(_SKIPPED_SHARE * steps_of_row, 1)
    return [_skipped(skipped, sums, heavy, first, last) for first, last in stretches(np.asarray(many & begun))]


def _skipped(skipped: Curve, sums: Numbers, heavy: Mask, first: int, last: int) -> Finding:
    begin = first
    while begin > 0 and heavy[max(0, begin - _NEAR) : begin].any():
        begin -= 1
    count = float(sums[last] - (sums[begin - 1] if begin else 0.0))
    step = int(skipped.steps[begin])
    return Finding(
        kind="loss_scale_collapse",
        severity="alarm" if last == skipped.steps.size - 1 else "warning",
        first_step=step,
        last_step=int(skipped.steps[last]),
        confidence=0.9,
        evidence=(Evidence(measure="updates left out", expected=0.0, observed=count, step=step),),
        remedy=remedy("use_bf16", step=step),
    )
