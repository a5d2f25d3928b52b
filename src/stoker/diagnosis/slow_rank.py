"""Ranks whose own work takes longer than the others'."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.recent_past import Curve, deviation
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.slow_rise import stretches

_BLOCK_ROWS = 16
_FEWEST_BLOCKS = 2
_BLOCKS_OF_A_WARNING = 4
_SLOW, _VERY_SLOW = float(np.log(1.25)), float(np.log(1.5))
_DEVIATIONS = 6.0


def find_slow_ranks(work: Mapping[int, Curve]) -> list[Finding]:
    """Ranks whose median seconds of work, over 16 rows and more than once in succession, exceed the others'.

    `work` holds each rank's own seconds of data, forward, backward and optimizer, without waiting for others:
    of its own clock's differences, so that clocks that differ between ranks do not matter. Compared at the same
    steps with the median of the other ranks: over a quarter more, and over 6 deviations between these. A rank
    that is slower from the first block to the last may only have more to do (a pipeline's stage), and is a
    note.
    """
    curves = {rank: curve.positive for rank, curve in work.items() if curve.positive.steps.size >= _BLOCK_ROWS}
    if len(curves) < 2:
        return []
    shared = reduce(np.intersect1d, (curve.steps for curve in curves.values()))
    blocks = shared.size // _BLOCK_ROWS
    if blocks < _FEWEST_BLOCKS:
        return []
    ends = shared[: blocks * _BLOCK_ROWS].reshape(blocks, _BLOCK_ROWS)
    ranks = sorted(curves)
    levels = np.stack(
        [
            np.median(
                curves[rank].values[np.searchsorted(curves[rank].steps, ends.ravel())].reshape(ends.shape), axis=1
            )
            for rank in ranks
        ]
    )
    found = []
    for row, rank in enumerate(ranks):
        others = np.delete(levels, row, axis=0)
        usual = np.median(others, axis=0)
        spread = np.array([deviation(np.log(others[:, block])) for block in range(blocks)])
        excess = np.log(levels[row] / usual)
        slow = excess > np.maximum(_SLOW, _DEVIATIONS * spread)
        for first, last in stretches(slow):
            if last - first + 1 >= _FEWEST_BLOCKS:
                of_note = (first == 0 and last == blocks - 1) or last - first + 1 < _BLOCKS_OF_A_WARNING
                peak = first + int(np.argmax(excess[first : last + 1]))
                found.append(
                    _finding(rank, int(ends[first, 0]), int(ends[last, -1]), of_note, float(usual[peak]),
                             float(levels[row, peak]), int(ends[peak, 0]))
                )  # fmt: skip
    return found


def _finding(rank: int, first: int, last: int, of_note: bool, usual: float, own: float, at: int) -> Finding:
    excess = float(np.log(own / usual))
    severity: Severity = "note" if of_note and excess < _VERY_SLOW else "warning"
    return Finding(
        kind="slow_rank",
        severity=severity,
        first_step=first,
        last_step=last,
        ranks=(rank,),
        confidence=confidence_of(excess, _SLOW),
        evidence=(Evidence(measure=f"seconds of rank {rank}'s own work", expected=usual, observed=own, step=at),),
        remedy=remedy("check_machine", ranks=[rank]),
    )
