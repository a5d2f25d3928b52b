"""Memory that grows from step to step and does not stop: over the whole record, or from some step on."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Curve, Numbers, deviation
from stoker.diagnosis.remedies import remedy

_BLOCKS = 8
_ROWS_OF_A_BLOCK = 4
_LEAST_SHARE = 0.05
_SHARE_OF_LATER_HALF = 0.25
_SETTLING_SHARE = 0.1
_LEAK_ROWS = 24
"""That a leak has to last, in six blocks, each of which has more than the one before."""
_LEAK_BLOCKS = 6
_LEAK_LEAST = 0.02
_LARGEST_BLOCK = 0.4
"""Of the growth: what comes at once is no leak."""
_DEVIATIONS = 8.0


def find_memory_growth(memory: Curve, rank: int, measure: str) -> list[Finding]:
    """A steady trend of a rank's memory, in bytes, over the last start of the run.

    The rows but for the first tenth, in which caches fill, are cut into eight blocks, each with its median. It
    grows when at least six of the seven changes are upwards and none is down by more than a tenth of the whole or
    up by more than two fifths of it, the whole is 5% or more, and a quarter of it or more came in the later half:
    memory that has found its place does not.
    """
    curve = memory.positive
    begin = int(_SETTLING_SHARE * curve.steps.size)
    steps, values = curve.steps[begin:], curve.values[begin:]
    if steps.size < _BLOCKS * _ROWS_OF_A_BLOCK:
        return []
    blocks = np.array([np.median(block) for block in np.array_split(values, _BLOCKS)])
    changes, growth = np.diff(blocks), float(blocks[-1] - blocks[0])
    later = float(blocks[-1] - blocks[_BLOCKS // 2])
    steady = np.count_nonzero(changes > 0) >= _BLOCKS - 2 and changes.min() > -0.1 * growth
    steady = steady and changes.max() < _LARGEST_BLOCK * growth
    if not steady or growth < _LEAST_SHARE * blocks[0] or later < _SHARE_OF_LATER_HALF * growth:
        return []
    rate = growth / max(float(steps[-1] - steps[0]), 1.0) * 1000 * _BLOCKS / (_BLOCKS - 1)
    return [
        Finding(
            kind="memory_growth",
            severity="warning",
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            ranks=(rank,),
            confidence=confidence_of(growth / float(blocks[0]), _LEAST_SHARE),
            evidence=(
                Evidence(
                    measure=measure, expected=float(blocks[0]), observed=float(blocks[-1]), step=int(steps[-1])
                ),
            ),
            remedy=remedy("find_leak", growth_bytes_per_1000_steps=round(rate)),
        )
    ]


def find_leak(memory: Curve, rank: int, measure: str) -> list[Finding]:
    """A rank's memory, in bytes, that has grown in each of the last six blocks of four rows or more, to the end of
    the record.

    By 2% and 8 deviations of the rows around the blocks' own line, and in no block by more than two fifths of it.
    It is looked for over stretches of 24 rows and twice, four times … as many, of which the longest tells since
    when."""
    curve = memory.positive
    found: tuple[int, float, float] | None = None
    rows = _LEAK_ROWS
    while rows <= curve.values.size * (1 - _SETTLING_SHARE):
        judged = _leaks(curve.values[-rows:])
        if judged is not None:
            found = (curve.values.size - rows, *judged)
        elif found is not None:
            break
        rows += max(4, rows // 4)
    if found is None:
        return []
    begin, growth, limit = found
    begin = _since(curve.values, begin)
    steps, before, now = curve.steps, float(curve.values[begin]), float(np.median(curve.values[-4:]))
    rate = (now - before) / max(float(steps[-1] - steps[begin]), 1.0) * 1000
    return [
        Finding(
            kind="memory_growth",
            severity="warning" if growth > _LEAST_SHARE * before else "note",
            first_step=int(steps[begin]),
            last_step=int(steps[-1]),
            ranks=(rank,),
            confidence=confidence_of(growth, limit),
            evidence=(Evidence(measure=measure, expected=before, observed=now, step=int(steps[-1])),),
            remedy=remedy("find_leak", growth_bytes_per_1000_steps=round(rate)),
        )
    ]


def _leaks(values: Numbers) -> tuple[float, float] | None:
    """(growth, limit) where each block has more than the one before."""
    blocks = np.array([np.median(block) for block in np.array_split(values, _LEAK_BLOCKS)])
    changes, growth = np.diff(blocks), float(blocks[-1] - blocks[0])
    places = np.arange(values.size)
    noise = deviation(values - np.poly1d(np.polyfit(places, values, 1))(places))
    limit = max(_LEAK_LEAST * float(blocks[0]), _DEVIATIONS * noise)
    steady = bool((changes > 0).all()) and float(changes.max()) < _LARGEST_BLOCK * growth
    return (growth, limit) if steady and growth > limit else None


def _since(values: Numbers, begin: int) -> int:
    """The row from which on it grows: where the curve lies furthest below the line from the record's start to its
    end."""
    start = int(_SETTLING_SHARE * values.size)
    line = np.linspace(values[start], values[-1], values.size - start)
    return max(begin, start + int(np.argmax(line - values[start:])))
