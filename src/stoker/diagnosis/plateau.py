"""A loss that has stopped falling although the learning rate still lets the model learn."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Curve, Mask, Numbers
from stoker.diagnosis.remedies import remedy

_BLOCKS = 24
_BLOCKS_OF_A_LEG = 6
_FEWEST_ROWS = 6 * _BLOCKS
_RATE_STILL_HIGH = 0.3
_STOPPED_SHARE = 0.2
"""Of the slope it had, or less: it has stopped."""
_DEVIATIONS = 4.0
_MOST_AT_ONCE = 0.5
_STEP = 0.2
"""Of the earlier fall, within one block of the later stretch: a step hides that it goes on falling."""
_EXPECTED_FALL = 0.02
"""Of the logarithm, over the stretch: a fall that could be seen."""


def find_plateau(loss: Curve, learning_rate: Curve) -> list[Finding]:
    """Whether the curve, which falls like a power of the step, goes flat.

    On logarithmic axes of both loss and step a loss falls in a nearly straight line. The second half of the
    record (on that axis, warm-up left out) is cut into 24 blocks of equal length, each with its median. A line
    through six successive blocks is compared with one through the six before. It is a plateau when the slope is
    less than a fifth of what it was, which had been a steady fall, the difference exceeds 4 standard errors of
    both slopes, at least 2% more fall was to be expected, and the learning rate is above 0.3 of its highest.
    The plateau that begins first is told.
    """
    curve = loss.positive
    still_learns = _still_learns(curve, learning_rate)
    begin, end = _range_that_learns(still_learns)
    if end - begin < _FEWEST_ROWS:
        return []
    places, levels, owners = _blocks(curve, begin, end)
    leg = _BLOCKS_OF_A_LEG
    for at in range(leg, levels.size - leg + 1):
        earlier, earlier_error = _slope(places[at - leg : at], levels[at - leg : at])
        later, later_error = _slope(places[at : at + leg], levels[at : at + leg])
        fall = levels[at - leg] - levels[at - 1]
        if (
            not _falls_steadily(levels[at - leg : at])
            or np.abs(np.diff(levels[at - 1 : at + leg])).max() > _STEP * fall
        ):
            continue
        length = places[at + leg - 1] - places[at]
        lost = (later - earlier) * length
        error = float(np.hypot(earlier_error, later_error)) * length
        if (
            earlier < 0
            and abs(later) < _STOPPED_SHARE * -earlier
            and lost > max(_DEVIATIONS * error, _EXPECTED_FALL)
        ):
            return [_finding(curve, levels, owners, at, earlier * length, lost, _DEVIATIONS * error)]
    return []


def _falls_steadily(levels: Numbers) -> bool:
    """Whether the fall was a trend: a change of the mixture or the data's order makes most of it at once."""
    falls = -np.diff(levels)
    return bool(np.count_nonzero(falls > 0) >= falls.size - 1 and falls.max() < _MOST_AT_ONCE * falls.sum())


def _still_learns(curve: Curve, rate: Curve) -> Mask:
    """Rows after the warm-up whose learning rate is high enough; all but the first tenth where none is recorded."""
    known = rate.finite
    if not known.steps.size or known.values.max() <= 0:
        return np.arange(curve.steps.size) >= curve.steps.size // 10
    at = np.clip(np.searchsorted(known.steps, curve.steps, side="right") - 1, 0, None)
    rates = known.values[at]
    warm = curve.steps > known.steps[int(np.argmax(known.values >= 0.95 * known.values.max()))]
    return np.asarray(warm & (rates > _RATE_STILL_HIGH * known.values.max()))


def _range_that_learns(flags: Mask) -> tuple[int, int]:
    """From the first row to after the last."""
    rows = np.flatnonzero(flags)
    return (int(rows[0]), int(rows[-1]) + 1) if rows.size else (0, 0)


def _blocks(curve: Curve, begin: int, end: int) -> tuple[Numbers, Numbers, list[int]]:
    """Blocks of equal length in log step over the record's later part: their places, medians and first rows."""
    last = float(curve.steps[end - 1])
    first = max(float(curve.steps[begin]), last / 8, 1.0)
    edges = np.searchsorted(curve.steps, np.geomspace(first, last, _BLOCKS + 1))
    edges[0], edges[-1] = max(edges[0], begin), end
    kept = [(a, b) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True) if b - a >= 3]
    steps, logs = np.log(np.maximum(curve.steps, 1)), np.log(curve.values)
    places = np.array([float(np.mean(steps[a:b])) for a, b in kept])
    levels = np.array([float(np.median(logs[a:b])) for a, b in kept])
    return places, levels, [a for a, _ in kept]


def _slope(places: Numbers, levels: Numbers) -> tuple[float, float]:
    """Of the least-squares line, with its standard error."""
    x = places - places.mean()
    spread = float(np.sum(x * x))
    slope = float(np.sum(x * levels)) / spread
    residuals = levels - levels.mean() - slope * x
    return slope, float(np.sqrt(np.sum(residuals**2) / (levels.size - 2) / spread))


def _finding(
    curve: Curve, levels: Numbers, owners: list[int], at: int, expected_fall: float, lost: float, limit: float
) -> Finding:
    leg = _BLOCKS_OF_A_LEG
    later = levels[at + leg :]
    goes_on = bool(later.size == 0 or later[-1] > levels[at] + _STOPPED_SHARE * expected_fall)
    end = curve.steps.size - 1 if at + leg >= len(owners) or goes_on else owners[at + leg]
    first, last = int(curve.steps[owners[at]]), int(curve.steps[end])
    start = float(np.exp(levels[at]))
    return Finding(
        kind="plateau",
        severity="warning" if goes_on else "note",
        first_step=first,
        last_step=last,
        confidence=confidence_of(lost, max(limit, _EXPECTED_FALL)),
        evidence=(
            Evidence(measure="loss, had it gone on falling", expected=start * float(np.exp(expected_fall)),
                     observed=start * float(np.exp(expected_fall + lost)), step=last),
        ),
        remedy=remedy("check_learning_rate", step=first),
    )  # fmt: skip
