"""Changes of the mixture under a run: what may not change, and what the record says of what did."""

from __future__ import annotations

import time
from itertools import groupby
from typing import Any

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.data.feeding.feed import train_tokens
from stoker.data.feeding.stages import Segment, same_until, segment_at, segments_of
from stoker.errors import BadInput
from stoker.plural import counted
from stoker.recipe import Recipe
from stoker.record import Record, RecordWriter
from stoker.run_directory import RunDirectory
from stoker.training.position import Position

MIXTURE = "mixture"
"""The event at the beginning of a run: which shares the sources have in which steps."""
CHANGED = "mixture_changed"
"""The event when a run goes on with another mixture: from which step on, old and new shares there."""


def require_same_past(run: RunDirectory, old: Recipe, new: Recipe, corpus: Corpus) -> None:
    """Raise `BadInput` when by the recipe `new` the steps that the run's record has would have had other samples.

    `old` is what they were trained with. Steps that were done and are not saved count as well: their samples stand
    in the record.
    """
    last = max(Record(run.record).steps(["step"])["step"].to_list(), default=0)
    if last == 0:
        return
    tokens = train_tokens(corpus, new)
    before, after = segments_of(old, tokens), segments_of(new, tokens)
    if same_until(before, after, old.training.samples_before(last + 1)):
        return
    step = first_difference(before, after)
    raise BadInput(
        f"the mixture of steps that are trained already would be another: {counted(last, 'steps')} are trained, "
        f"and from step {step:,} on the shares would be {_words(segment_at(after, step), tokens)} instead of "
        f"{_words(segment_at(before, step), tokens)}. Put data.mixture and training.steps back as they were, and "
        f"give what shall change a stage of its own: the stage before it ends with `until: {last}` or a later step "
        "(a share of the steps moves when training.steps does)"
    )


def first_difference(old: tuple[Segment, ...], new: tuple[Segment, ...]) -> int:
    """The first step from which on two mixtures give different samples; they do differ."""
    starts = sorted({segment.first_step for segment in (*old, *new)})
    return next(step for step in starts if _in_force(old, step) != _in_force(new, step))


def _in_force(segments: tuple[Segment, ...], step: int) -> tuple[object, ...]:
    own = segment_at(segments, step)
    return own.first_sample, own.counts, own.limits


def note_mixture(record: RecordWriter, run: RunDirectory, feed: Feed, position: Position) -> None:
    """Write the mixture of a run to its record when it begins, and when it goes on with another."""
    told = [event for event in Record(run.record).events() if event["event"] in (MIXTURE, CHANGED)]
    stages = _stages(feed)
    if told and told[-1]["detail"]["stages"] == stages:
        return
    detail: dict[str, Any] = {"stages": stages}
    if told:
        step = max(position.step + 1, _first_told_difference(told[-1]["detail"]["stages"], stages))
        detail |= {"from_step": step, "old": _told_at(told[-1]["detail"]["stages"], step), "new": feed.shares(step)}
    row = {"step": position.step, "event": CHANGED if told else MIXTURE, "attempt": position.attempt}
    record.append("event", {**row, "time": time.time(), "detail": detail})


def _stages(feed: Feed) -> list[dict[str, Any]]:
    """Of each stage: its first step, and its shares in its first and its last step."""
    found = []
    for stage, parts in groupby(feed.segments, key=lambda segment: segment.stage):
        first, *others = parts
        found.append(
            {
                "stage": stage,
                "first_step": first.first_step,
                "shares": _named(feed, first),
                "last_shares": _named(feed, others[-1] if others else first),
            }
        )
    return found


def _named(feed: Feed, segment: Segment) -> dict[str, float]:
    return {name: round(share, 6) for name, share in zip(feed.corpus.source_names, segment.shares, strict=True)}


def _first_told_difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> int:
    starts = sorted({int(stage["first_step"]) for stage in (*old, *new)})
    return next((step for step in starts if _told_stage(old, step) != _told_stage(new, step)), 1)


def _told_stage(stages: list[dict[str, Any]], step: int) -> dict[str, Any]:
    own = [stage for stage in stages if stage["first_step"] <= step][-1]
    return {key: own[key] for key in ("first_step", "shares", "last_shares")}


def _told_at(stages: list[dict[str, Any]], step: int) -> dict[str, float]:
    own: dict[str, float] = _told_stage(stages, step)["last_shares"]
    return own


def _words(segment: Segment, tokens: dict[str, int]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in zip(tokens, segment.shares, strict=True))
