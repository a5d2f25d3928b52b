"""Which part of a step takes longer than it did, on which ranks: computing, waiting for data, for others, or
else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from stoker.diagnosis.excursion import Excursion, excursions
from stoker.diagnosis.finding import Evidence, Finding, Part, Severity, confidence_of
from stoker.diagnosis.recent_past import (
    TO_DEVIATIONS,
    Numbers,
    Steps,
    Usual,
    as_numbers,
    as_steps,
    likelihood,
    past_median,
    rolling_low,
    rolling_median,
    shifted,
    window_of,
)
from stoker.diagnosis.remedies import remedy
from stoker.record import names_of

ASIDE = ("evaluation", "checkpoint")
"""Phases that are done now and then, and are not of a step."""
WORK = ("forward", "backward", "optimizer")
PARTS: tuple[Part, ...] = ("compute", "data", "host", "communication")
MEASURES = {
    "compute": "seconds of forward, backward and optimizer",
    "data": "seconds of waiting for data",
    "host": "seconds of a step that no phase has",
    "communication": "seconds of waiting for other ranks",
}
_TOGETHER = 5
"""Rows whose median counts: single slow steps are the machine's."""
_LEAST = 0.1
"""Of a step."""
_DEVIATIONS = 6.0
_LEAST_DEVIATION = 0.01
_NOTABLE = 0.25
_LEAST_SCORE = 3.0
"""Nats: what is likelier by chance, on a machine that others use as well, is not told."""
_LASTING, _LASTING_OF_DATA = 12, 5
"""Rows of a warning: batches are made ahead, so that waiting for them is soon no chance."""
_PAST_WINDOWS, _PAST_OF_ALL = 2, 8
"""That have to lie before a warning, and before one that all ranks work longer: for that a machine that others use
is enough, and how far it wanders is known only then."""


@dataclass(frozen=True)
class Parts:
    """Seconds of each part of one rank's steps."""

    steps: Steps
    parts: dict[Part, Numbers]
    total: Numbers
    """Without evaluation and saving."""


def parts_of(table: pl.DataFrame) -> Parts:
    """From a rank's step rows; a part that was not recorded is absent."""
    steps, nothing = as_steps(table["step"].to_numpy()), np.zeros(table.height)
    phases = {name: as_numbers(table, f"seconds.{name}") for name in names_of(table, "seconds")}
    total = phases.pop("total", np.full(table.height, np.nan))
    total = total - sum((np.nan_to_num(phases.pop(name, nothing)) for name in ASIDE), nothing)
    parts: dict[Part, Numbers] = {}
    waits = [as_numbers(table, f"waited.{name}") for name in names_of(table, "waited")]
    work = as_numbers(table, "work_seconds")
    if not np.isfinite(work).any() and any(name in phases for name in WORK):
        work = sum((np.nan_to_num(phases[name]) for name in WORK if name in phases), nothing)
    if np.isfinite(work).any():
        parts["compute"] = work
    if "data" in phases:
        parts["data"] = phases["data"]
    if waits:
        parts["communication"] = sum((np.nan_to_num(one) for one in waits), nothing)
    elif "communication" in phases:
        parts["communication"] = phases["communication"]
    if phases and np.isfinite(total).any():
        parts["host"] = np.maximum(total - sum((np.nan_to_num(one) for one in phases.values()), nothing), 0)
    return Parts(steps, parts, total)


def within(of_ranks: dict[int, Parts], first: int, last: int) -> dict[int, Parts]:
    """Only the steps from `first` to `last`, both included; ranks without any are absent."""
    found = {}
    for rank, own in of_ranks.items():
        rows = slice(*np.searchsorted(own.steps, [first, last + 1]).tolist())
        if own.steps[rows].size:
            parts = {name: seconds[rows] for name, seconds in own.parts.items()}
            found[rank] = Parts(own.steps[rows], parts, own.total[rows])
    return found


@dataclass(frozen=True)
class _Longer:
    rank: int
    part: Part
    first: int
    last: int
    """Rows, both included."""
    excess: float
    """In usual steps."""
    score: float
    """Nats for it: of so many rows together, less the number of places where such a stretch may lie."""
    limit: float
    usual: float
    seconds: float
    """Of the part."""
    lasts: bool


def _in_rows_of(steps: Steps, own: Steps, one: _Longer) -> _Longer:
    """With the places that its first and last step have among `steps`: ranks of which rows are lost have others."""
    first, last = np.searchsorted(steps, [own[one.first], own[one.last]]).tolist()
    return replace(one, first=first, last=last)


def find_longer_parts(of_ranks: dict[int, Parts]) -> list[Finding]:
    """Stretches in which the median of five rows of a part exceeds its window before (32 rows) by a tenth of a step
    and 6 deviations.

    Of one rank: a slow rank. Of half the ranks or more, or of the only one: a drop of the throughput. That ranks
    wait for others counts only where no rank's own part takes longer at the same time: else they wait for that one.
    Notes; a warning from 12 rows (of waiting for data: 5) and a quarter of a step on, where enough rows lie before
    it; where all ranks work longer, only while they do.
    """
    looked_at = PARTS if len(of_ranks) > 1 else PARTS[:-1]  # one rank waits for nobody
    steps = np.unique(np.concatenate([own.steps for own in of_ranks.values()])) if of_ranks else as_steps([])
    longer = [
        _in_rows_of(steps, own.steps, one)
        for rank, own in of_ranks.items()
        for part in looked_at
        for one in _of_part(rank, part, own)
    ]
    own = [one for one in longer if one.part != "communication"]
    waits = [one for one in longer if one.part == "communication" and not any(_meet(one, other) for other in own)]
    found = []
    rest = [*own, *waits]
    while rest:
        first = min(rest, key=lambda one: (one.first, -one.excess))
        group = [one for one in rest if one.part == first.part and _meet(one, first)]
        rest = [one for one in rest if one not in group]
        found.append(_finding(steps, len(of_ranks), group))
    return found


def _meet(one: _Longer, other: _Longer) -> bool:
    return one.first <= other.last + _TOGETHER and other.first <= one.last + _TOGETHER


def _of_part(rank: int, part: Part, of_rank: Parts) -> list[_Longer]:
    seconds = of_rank.parts.get(part)
    if seconds is None or seconds.size < 3 * _TOGETHER or not np.isfinite(of_rank.total).any():
        return []
    window = window_of(seconds.size)
    # Over a long past: steps that were long for a while must not make what came behind them look larger.
    step = shifted(past_median(of_rank.total, 8 * window), 1)
    share = np.nan_to_num(seconds) / np.where(np.isfinite(step) & (step > 0), step, np.nan)
    level = rolling_low(share, _TOGETHER) if part == "compute" else rolling_median(share, _TOGETHER)
    expected = shifted(rolling_median(level, window, _TOGETHER), _TOGETHER)
    around = np.abs(level - expected)
    spread = shifted(TO_DEVIATIONS * past_median(around, 8 * window, _TOGETHER), _TOGETHER)
    limit = np.maximum(_DEVIATIONS * np.fmax(spread, _LEAST_DEVIATION), _LEAST)
    known = np.isfinite(expected) & np.isfinite(limit) & (np.arange(share.size) >= max(3 * _TOGETHER, window))
    usual = Usual(np.nan_to_num(expected), np.where(known, limit, np.inf))
    found = [
        _longer(rank, part, of_rank, share, one)
        for one in excursions(np.nan_to_num(level), usual)
        if one.rows >= _TOGETHER // 2
    ]
    return [one for one in found if one.score >= _LEAST_SCORE]


def _longer(rank: int, part: Part, of_rank: Parts, share: Numbers, one: Excursion) -> _Longer:
    begin = max(0, one.noticed - _TOGETHER + 1)
    high = share[begin : one.noticed + 1] - one.expected > one.limit / 2
    first = begin + int(np.argmax(high)) if high.any() else one.noticed
    last = max(first, one.last - _TOGETHER // 2) if one.recovered is not None else one.last
    during, before = slice(first, last + 1), slice(max(0, first - 32), first)
    seconds = np.nan_to_num(of_rank.parts[part])
    rows, excess = last - first + 1, float(np.median(share[during]) - one.expected)
    score = likelihood(_DEVIATIONS * max(excess, 0.0) / one.limit * math.sqrt(rows / _TOGETHER))
    if one.recovered is not None:  # what lasts is looked at now, and nowhere else
        score -= math.log(max(share.size / rows, 1.0))
    return _Longer(
        rank, part, first, last, excess, score, one.limit,
        float(np.median(seconds[before])) if first else float("nan"), float(np.median(seconds[during])),
        one.recovered is None,
    )  # fmt: skip


def _finding(steps: Steps, ranks_there: int, group: Sequence[_Longer]) -> Finding:
    worst = max(group, key=lambda one: one.excess)
    at_fault = sorted({one.rank for one in group if one.excess > worst.excess / 2})
    everywhere = 2 * len(at_fault) > ranks_there or worst.part == "communication"
    first, last = min(one.first for one in group), max(one.last for one in group)
    rows = last - first + 1
    by_others = everywhere and worst.part in ("compute", "host")
    known = first >= (_PAST_OF_ALL if by_others else _PAST_WINDOWS) * window_of(steps.size)
    enough = rows >= (_LASTING_OF_DATA if worst.part == "data" else _LASTING)
    notable = worst.excess > max(_NOTABLE, worst.limit) and enough and known
    severity: Severity = "warning" if notable and (worst.lasts or not by_others) else "note"
    step = int(steps[first])
    of = "" if ranks_there == 1 else f" of rank {worst.rank}"
    ranks = () if everywhere else tuple(at_fault)
    todo = (
        remedy("check_machine", ranks=list(ranks))
        if ranks
        else remedy("check_phase", phase=MEASURES[worst.part].removeprefix("seconds of "), step=step)
    )
    return Finding(
        kind="throughput_drop" if everywhere else "slow_rank",
        part=worst.part,
        severity=severity,
        first_step=step,
        last_step=int(steps[last]),
        ranks=ranks,
        score=worst.score,
        confidence=confidence_of(worst.excess, worst.limit),
        evidence=(
            Evidence(measure=MEASURES[worst.part] + of, expected=worst.usual, observed=worst.seconds, step=step),
        ),
        remedy=todo,
    )
