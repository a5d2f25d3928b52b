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
_SATURATES = float(np.log(6.0))
_KEEPS_ON = 0.6
"""Of the growth of the three rows before, that the last three have where it does not stop by itself."""
_FASTER = 3.0
_SATURATED = float(np.log(100.0))
"""What is clipped to in practice (the QK-clip of Kimi K2 2025, arXiv:2507.20534, limits logits to 100): attention
looks at one place only."""
_HARMLESS = float(np.log(20.0))
"""A growth that stopped by itself below this has done nothing: natural logits end between 3 and 15."""
_AHEAD = 20
"""Rows in which growth that goes on as now has to be saturated, to be more than worth a note."""


def find_logit_growth(logits: Mapping[str, Curve], entropies: Mapping[str, Curve]) -> list[Finding]:
    """Parts of the model whose largest attention logit grows by three rows in a row to far above the line through
    its past: a quarter more, and 6 deviations around that line, at three times its slope or more, and no slower
    than before.

    Below 6 attention is far from saturated (the softmax still gives the hundredth part to what lies 4.6
    lower): logits that grow there are learning. Above it the finding is a warning where they went past 20, or
    where the growth of the last rows, going on, saturates attention within twenty more; growth that ended by itself
    before is a note.

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
    most = max(grown, key=lambda module: grown[module][4] / grown[module][5])
    curve, first, at, expected, excess, limit = grown[most]
    begun = int(curve.steps[first])
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
            severity="warning"
            if any(_endangers(np.log(one[0].values), one[2]) for one in grown.values())
            else "note",
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
        if not (np.diff(recent) > 0).all() or logs[at] < _SATURATES:
            continue
        first = _onset(logs, at)
        past = slice(max(0, first - _PAST), first)
        if past.stop - past.start < _FEWEST_PAST:
            continue
        slope, level = np.polyfit(rows[past], logs[past], 1)
        residuals = logs[past] - (slope * rows[past] + level)
        spread = max(TO_DEVIATIONS * float(np.median(np.abs(residuals))), float(residuals.std()), _LEAST_DEVIATION)
        expected = max(float(slope) * at + float(level), float(np.median(logs[past])))
        excess, limit = float(logs[at] - expected), max(_DEVIATIONS * spread, _LEAST)
        growth = recent[-1] - recent[0]
        faster = growth / _IN_A_ROW > _FASTER * max(float(slope), spread / _PAST)
        keeps_on = growth > _KEEPS_ON * (recent[0] - logs[max(0, at - 2 * _IN_A_ROW)])
        if excess > limit and faster and keeps_on:
            return first, at, expected, excess, limit
    return None


def _endangers(logs: Numbers, at: int) -> bool:
    """Whether growth that stood out in row `at` has gone far, or will soon if it goes on as in the last rows."""
    recent = logs[-_IN_A_ROW - 1 :]
    return bool(logs[at:].max() > _HARMLESS or recent.max() + _AHEAD * max(_slope(logs), 0.0) > _SATURATED)


def _slope(logs: Numbers) -> float:
    """Per row, at the end: what most of the last rows rose by where all did, else the median over all pairs of
    twice as many (Sen 1968), which a zigzag does not tilt."""
    rises = np.diff(logs[-_IN_A_ROW - 1 :])
    if (rises > 0).all():
        return float(np.median(rises))
    values = logs[-2 * _IN_A_ROW - 1 :]
    earlier, later = np.triu_indices(values.size, 1)
    return float(np.median((values[later] - values[earlier]) / (later - earlier)))


def _onset(logs: Numbers, at: int) -> int:
    """The first row of the growth that stands out in row `at`: behind the knee of the best line with one knee
    through the rows before it, and those behind it as far as they are there."""
    begin, end = max(0, at - _PAST - _IN_A_ROW), min(logs.size, at + 1 + _IN_A_ROW)
    rows = np.arange(begin, end, dtype=np.float64)
    misfits = {}
    for knee in range(begin + _IN_A_ROW, at):
        lines = np.stack([np.ones_like(rows), rows - knee, np.maximum(rows - knee, 0.0)], axis=1)
        fitted, *_ = np.linalg.lstsq(lines, logs[begin:end], rcond=None)
        misfits[knee] = float(np.square(lines @ fitted - logs[begin:end]).sum())
    return min(min(misfits, key=misfits.__getitem__) + 1, at)


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
