"""Memory that grows from step to step and does not stop."""

from __future__ import annotations

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Curve
from stoker.diagnosis.remedies import remedy

_BLOCKS = 8
_ROWS_OF_A_BLOCK = 4
_LEAST_SHARE = 0.05
_SHARE_OF_LATER_HALF = 0.25
_SETTLING_SHARE = 0.1


def find_memory_growth(memory: Curve, rank: int, measure: str) -> list[Finding]:
    """A steady trend of a rank's memory, in bytes, over the last start of the run.

    The rows but for the first tenth, in which caches fill, are cut into eight blocks, each with its median. It
    grows when at least six of the seven changes are upwards and none is down by more than a tenth of the whole,
    the whole is 5% or more, and a quarter of it or more came in the later half: memory that has found its place
    does not.
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
