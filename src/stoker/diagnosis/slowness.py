"""How computing, or waiting, became longer: when it began, at once or over tens of rows, and whether it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stoker.diagnosis.finding import Finding, Part
from stoker.diagnosis.recent_past import Numbers, rolling_median
from stoker.diagnosis.step_parts import Parts

_EARLIER, _LATER = 45, 15
"""Rows before and after the one at which it was noticed, between which it may have begun: a slow rise is noticed
late."""
_BEFORE, _FEWEST_BEFORE = 30, 8
_SETTLED, _AFTER = 12, 45
"""Rows behind it from which, and up to which, it is as slow as it becomes."""
_RAMPS = (20, 30, 45)
_ALIKE_ROWS = 4
"""Rows that say about the same, since the same disturbs them."""
_ABOUT_AS_WELL = 1.05
_MOST = 6.0
_LEFT = 0.35
"""Of what it was longer by, below which it is over."""
_FEWEST_SINCE = 6


@dataclass(frozen=True)
class Slowness:
    """The course of one rank's computing around the row at which it was found to be slow."""

    first: int
    """The step at which the best course begins; of a slowness that is over, the best one that came at once, as it
    went."""
    gradual: float
    """Nats that it became longer over tens of rows, and not at once: how well either course fits."""
    over: bool
    """Whether it is back for six rows at least."""


def slowness(parts: Mapping[int, Parts], found: Finding) -> Slowness | None:
    """Of the rank that became longest; None where the record says too little."""
    part: Part = found.part or "compute"
    courses = [
        one
        for rank in found.ranks or tuple(parts)
        if rank in parts and (one := _course(parts[rank], part, found.first_step, found.last_step)) is not None
    ]
    return max(courses, key=lambda one: one[0])[1] if courses else None


def with_its_beginning(parts: Mapping[int, Parts], found: Finding) -> Finding:
    """A finding of slow computing, or of longer waits, with the step at which it began."""
    if found.kind not in ("slow_rank", "throughput_drop") or found.part not in (None, "compute", "communication"):
        return found
    course = slowness(parts, found)
    return found if course is None else found.model_copy(update={"first_step": course.first})


def _course(own: Parts, part: Part, first_step: int | None, last_step: int | None) -> tuple[float, Slowness] | None:
    """By which factor it is longer, and how it came."""
    seconds = own.parts.get(part)
    if seconds is None or first_step is None:
        return None
    at = int(np.searchsorted(own.steps, first_step))
    end = int(np.searchsorted(own.steps, own.steps[-1] if last_step is None else last_step, side="right"))
    levels = np.nan_to_num(rolling_median(seconds, 3, 1))
    levels = np.append(levels[1:], levels[-1:])  # of the rows around each
    earlier = max(0, at - _EARLIER)
    calm = levels[max(0, earlier - _BEFORE) : earlier + 1]
    before = float(np.median(calm if calm.size >= _FEWEST_BEFORE else levels[:at] if at else levels[:1]))
    during = levels[min(at + _SETTLED, (at + end) // 2) : min(at + _AFTER, end)]
    if at < _LATER or before <= 0 or not during.size:
        return None
    after = float(np.median(during))
    if after <= before:
        return None
    stop = min(at + _AFTER, end)
    kept, rows = levels[earlier:stop], np.arange(earlier, stop, dtype=np.float64)
    starts = range(earlier, min(at + _LATER, stop - 1) + 1)
    sudden = _best(kept, rows, before, after, starts, (1,))
    slow = _best(kept, rows, before, after, starts, _RAMPS)
    gradual = float(np.clip(kept.size / _ALIKE_ROWS * np.log(sudden[0] / slow[0]), -_MOST, _MOST))
    over = _is_over(levels, at, before, after)
    at_once = part != "compute" or over
    first = slow[1] if slow[0] < sudden[0] and not at_once else sudden[1]
    return after / before, Slowness(int(own.steps[first]), gradual, over)


def _best(
    levels: Numbers, rows: Numbers, before: float, after: float, starts: Sequence[int], lengths: Sequence[int]
) -> tuple[float, int]:
    """The smallest mean absolute residual of a rise of these lengths, of what it rises by, and where it begins: the
    latest row of those that fit about as well, for a slow rise hardly differs from none at first."""
    found = []
    for start in starts:
        for length in lengths:
            course = before + (after - before) * np.clip((rows - start + 1) / length, 0.0, 1.0)
            found.append((float(np.abs(levels - course).mean()) / (after - before) + 1e-3, start))
    best = min(found)[0]
    return best, max(start for misfit, start in found if misfit <= _ABOUT_AS_WELL * best)


def _is_over(levels: Numbers, first: int, before: float, after: float) -> bool:
    """Whether some six rows in a row behind it are near the level before, all but one of them."""
    back = (levels[first + _SETTLED :] - before < _LEFT * (after - before)).astype(np.int64)
    if back.size < _FEWEST_SINCE:
        return False
    return bool(np.convolve(back, np.ones(_FEWEST_SINCE, np.int64), "valid").max() >= _FEWEST_SINCE - 1)
