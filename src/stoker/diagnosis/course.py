"""What happened to a run, in order: what its ranks and its supervisor recorded, and what nobody could record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from stoker.record import SUPERVISOR, Record
from stoker.record.segments import rank_folder

Event = dict[str, Any]
COMMAND_ENDED = "command_ended"
"""An attempt that nobody recorded the end of: the supervisor or the only rank had no time to."""
RANKS_CHANGED = "ranks_changed"
"""An attempt with another number of ranks than the one before, or another layout of as many."""
_BEGIN = ("started", "resumed")
_LARGEST_STEP = 2**53
"""Of a row that counts further, nothing can be drawn."""
_ENDS = ("finished", "terminated", "non_finite", "failure", "gave_up", "supervisor_died", "ranks_ended")
_RESIZED = ("shrunk", "grown")


@dataclass(frozen=True)
class _Start:
    """What the step rows say of one attempt."""

    number: int
    first_step: int
    last_step: int
    began: float
    ended: float
    ranks: int | None


def course_of(record: Record, under_way: bool) -> list[Event]:
    """Every event by time, with those that follow from the others: ends and changes of the number of ranks that no
    event tells of, and what each resume went on from. A request to stop is told once."""
    events = record.events()
    if rank_folder(record.folder, SUPERVISOR).is_dir():
        events = [*events, *record.events(SUPERVISOR)]
    events = [readable(event) for event in events]
    starts = _starts(record)
    events = [*_told_once(events), *_unrecorded_ends(events, starts, under_way), *_changes_of_ranks(events, starts)]
    return list(_with_origins(sorted(events, key=_time), starts))


def detail_of(event: Event) -> dict[str, Any]:
    """The event's detail; an empty one where it is no mapping."""
    detail = event.get("detail")
    return detail if isinstance(detail, dict) else {}


def readable(event: Event) -> Event:
    """Without a step, attempt, time or name that is none: whoever reads events on may rely on those."""
    step, attempt, time = (event.get(name) for name in ("step", "attempt", "time"))
    whole = isinstance(step, int) and abs(step) < _LARGEST_STEP
    known = isinstance(time, int | float) and math.isfinite(time)
    return {
        **event,
        "step": step if whole else None,
        "attempt": attempt if isinstance(attempt, int) else None,
        "time": time if known else None,
        "event": str(event.get("event")),
    }


def _time(event: Event) -> float:
    time = event.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _starts(record: Record) -> list[_Start]:
    rows = record.rows("step", ["attempt", "step", "time", "ranks"])
    if not {"attempt", "step", "time"} <= set(rows.columns):
        return []
    if "ranks" not in rows.columns:
        rows = rows.with_columns(ranks=pl.lit(None, dtype=pl.Int64))
    step, time = pl.col("step"), pl.col("time")
    summary = (
        rows.drop_nulls(["attempt", "step", "time"])
        .group_by("attempt")
        .agg(step.min().alias("first"), step.max().alias("last"), time.min().alias("began"),
             time.max().alias("ended"), pl.col("ranks").last())
        .sort("attempt")
    )  # fmt: skip
    return [_Start(*row) for row in summary.iter_rows()]


def _told_once(events: Sequence[Event]) -> Iterator[Event]:
    """A request to stop is no failure; and that ranks have ended is told by why they did."""
    why = {event.get("attempt") for event in events if event.get("event") in _ENDS[:-1]}
    asked = {event.get("attempt") for event in events if event.get("event") == "terminated"}
    for event in events:
        name, attempt = event.get("event"), event.get("attempt")
        if name == "failure" and detail_of(event).get("kind") == "terminated":
            if attempt not in asked:
                yield {**event, "event": "terminated"}
        elif name != "ranks_ended" or attempt not in why:
            yield event


def _unrecorded_ends(events: Sequence[Event], starts: Sequence[_Start], under_way: bool) -> Iterator[Event]:
    ended = {event.get("attempt") for event in events if event.get("event") in _ENDS}
    begun = {event.get("attempt") for event in events if event.get("event") in _BEGIN}
    for start in starts:
        followed = any(isinstance(one, int) and one > start.number for one in begun)
        if start.number in begun and start.number not in ended and (followed or not under_way):
            yield {
                "step": start.last_step,
                "event": COMMAND_ENDED,
                "attempt": start.number,
                "time": start.ended,
                "detail": {},
            }


def _changes_of_ranks(events: Sequence[Event], starts: Sequence[_Start]) -> Iterator[Event]:
    told = {event.get("attempt") for event in events if event.get("event") in _RESIZED}
    begun = {event.get("attempt"): event for event in events if event.get("event") in _BEGIN}
    layouts = {attempt: detail_of(event).get("layout") for attempt, event in begun.items()}
    for before, start in pairwise(starts):
        ranks, layout = (before.ranks, start.ranks), (layouts.get(before.number), layouts.get(start.number))
        changed = any(None not in pair and pair[0] != pair[1] for pair in (ranks, layout))
        if changed and start.number not in told:
            yield {
                "step": start.first_step - 1,
                "event": RANKS_CHANGED,
                "attempt": start.number,
                "time": min(start.began, _time(begun[start.number]) if start.number in begun else start.began),
                "detail": {"ranks": ranks[1], "before": ranks[0], "layout": layout[1], "layout_before": layout[0]},
            }


def _with_origins(events: Iterable[Event], starts: Sequence[_Start]) -> Iterator[Event]:
    """A run goes on from a checkpoint that is told of before; of any other step there were copies in memory."""
    saved: set[Any] = set()
    for event in events:
        step, attempt = event.get("step"), event.get("attempt")
        if event.get("event") == "saved":
            saved.add(step)
        if event.get("event") != "resumed" or not isinstance(step, int) or not isinstance(attempt, int):
            yield event
            continue
        reached = [start.last_step for start in starts if start.number < attempt]
        again = max(0, reached[-1] - step) if reached else None
        source = "checkpoint" if step in saved else "memory" if reached and step <= reached[-1] else None
        yield {**event, "detail": {**detail_of(event), "origin": source, "steps_again": again}}
