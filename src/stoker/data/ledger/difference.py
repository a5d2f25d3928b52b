"""Two prepared corpora side by side: which documents came, went, or met another fate, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stoker.data.ledger.index import Hashes, hash_of
from stoker.data.ledger.reading import Ledger

ABSENT = "absent"
"""The fate of a document in the corpus that does not have it."""
_APART = np.uint64(0x9E3779B97F4A7C15)
_FATE = pl.coalesce(pl.col("reason"), pl.col("verdict"))


@dataclass(frozen=True, slots=True)
class Transition:
    """Documents of one source that had one fate in the first corpus and have another in the second."""

    source: str
    before: str
    """A reason, a verdict, or `ABSENT`."""
    after: str
    documents: int
    bytes: int
    """Of the text as it was read, by the second corpus where that has it."""
    changed_text: int
    """How many of them read differently in the two."""
    first_rows: tuple[int, ...]
    """A few of them, spread evenly: their rows in the first corpus …"""
    second_rows: tuple[int, ...]
    """… or, where the first does not have them, in the second."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A line of both funnels."""

    source: str
    stage: str
    reason: str | None
    before: int | None
    """Documents; None where this funnel has no such line."""
    after: int | None


@dataclass(frozen=True, slots=True)
class SourceTokens:
    """Training tokens of a source in both; None where a corpus does not have it."""

    source: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class MovedThreshold:
    """A rule whose threshold is another, or which only one of the two has (None in the other)."""

    source: str
    reason: str
    measure: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """All that is different between two corpora."""

    funnel: tuple[Stage, ...]
    sources: tuple[SourceTokens, ...]
    thresholds: tuple[MovedThreshold, ...]
    transitions: tuple[Transition, ...]
    unchanged: int
    """Documents with the same fate and text in both."""
    changed_text: int
    """Documents with the same fate whose text is another."""

    def as_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return asdict(self)


def difference(first: Ledger, second: Ledger, count: int = 5) -> Difference:
    """What is different in `second`, with `count` documents for each transition.

    Documents are the same when source and identifier are; of several with one identifier, the first of one corpus
    is held against the first of the other, and so on. Identifiers are compared by 64-bit hashes.
    """
    sources = list(dict.fromkeys(one.name for ledger in (first, second) for one in ledger.description.sources))
    fates = sorted({str(fate) for ledger in (first, second) for fate in ledger.summary().select(_FATE).to_series()})
    fates.append(ABSENT)
    sides = [_side(ledger, sources, fates) for ledger in (first, second)]
    matched = sides[0].join(sides[1], on="key", how="full", coalesce=True, suffix="_after")
    absent = len(fates) - 1
    compared = matched.select(
        pl.col("source").fill_null(pl.col("source_after")),
        pl.col("fate").fill_null(absent).alias("before"),
        pl.col("fate_after").fill_null(absent).alias("after"),
        pl.col("bytes_after").fill_null(pl.col("bytes")).alias("size"),
        (pl.col("text") != pl.col("text_after")).fill_null(value=False).alias("changed"),
        "row",
        "row_after",
    )
    same = compared.filter(pl.col("before") == pl.col("after"))
    moved = compared.filter(pl.col("before") != pl.col("after")).sort("row", "row_after", nulls_last=True)
    transitions = [
        _transition(sources[source], fates[before], fates[after], own, count)
        for (source, before, after), own in moved.group_by("source", "before", "after", maintain_order=True)
    ]
    return Difference(
        funnel=_funnel(first, second),
        sources=_tokens(first, second),
        thresholds=_thresholds(first, second),
        transitions=tuple(sorted(transitions, key=lambda one: -one.documents)),
        unchanged=int((~same["changed"]).sum()),
        changed_text=int(same["changed"].sum()),
    )


def _side(ledger: Ledger, sources: Sequence[str], fates: Sequence[str]) -> pl.DataFrame:
    """Row, key, source and fate (by their places in the lists), bytes, the first eight of the text's SHA-256."""
    frame = ledger.columns(
        [
            pl.col("source").replace_strict(sources, range(len(sources)), return_dtype=pl.UInt16),
            _FATE.replace_strict(fates, range(len(fates)), return_dtype=pl.UInt16).alias("fate"),
            "bytes",
            pl.col("sha256").bin.head(8).bin.reinterpret(dtype=pl.UInt64).alias("text"),
        ]
    )
    keys = _keys(ledger, frame["source"].to_numpy(), sources)
    return frame.with_columns(pl.Series("key", keys), pl.arange(frame.height, dtype=pl.UInt32).alias("row"))


def _keys(ledger: Ledger, source: npt.NDArray[np.uint16], sources: Sequence[str]) -> Hashes:
    """A key for each row that no other row has: of identifier, source, and how many had both before."""
    hashes, rows = ledger.hashes()
    keys = np.empty(len(rows), np.uint64)
    keys[rows] = hashes
    keys ^= np.asarray([hash_of(f"source {name}") for name in sources], np.uint64)[source]
    equal = np.flatnonzero(hashes[1:] == hashes[:-1])
    again = np.sort(np.unique(rows[np.concatenate([equal, equal + 1])]))  # rows whose identifier others have, too
    order = again[np.argsort(keys[again], kind="stable")]
    if not len(order):
        return keys
    first = np.flatnonzero(np.concatenate([[True], keys[order[1:]] != keys[order[:-1]]]))
    places = np.arange(len(order))
    occurrence = places - np.repeat(first, np.diff(np.append(first, len(order))))
    keys[order] += occurrence.astype(np.uint64) * _APART
    return keys


def _transition(source: str, before: str, after: str, own: pl.DataFrame, count: int) -> Transition:
    column = "row_after" if before == ABSENT else "row"
    rows = own[column].to_numpy()
    chosen = rows if len(rows) <= count else rows[np.arange(count) * len(rows) // count]
    picked = tuple(int(row) for row in chosen)
    return Transition(
        source=source,
        before=before,
        after=after,
        documents=own.height,
        bytes=int(own["size"].sum()),
        changed_text=int(own["changed"].sum()),
        first_rows=() if before == ABSENT else picked,
        second_rows=picked if before == ABSENT else (),
    )


def _funnel(first: Ledger, second: Ledger) -> tuple[Stage, ...]:
    sides = [
        {(one["source"], one["stage"], one.get("reason")): one["documents"] for one in ledger.funnel()}
        for ledger in (first, second)
    ]
    lines = _merged(list(sides[0]), list(sides[1]))
    return tuple(
        Stage(source, stage, reason, sides[0].get((source, stage, reason)), sides[1].get((source, stage, reason)))
        for source, stage, reason in lines
    )


def _tokens(first: Ledger, second: Ledger) -> tuple[SourceTokens, ...]:
    sides = []
    for ledger in (first, second):
        trained = (
            ledger.summary().filter(pl.col("verdict") == "kept").group_by("source").agg(pl.col("tokens").sum())
        )
        names = {source.name: 0 for source in ledger.description.sources}
        sides.append(names | dict(trained.iter_rows()))
    lines = _merged(list(sides[0]), list(sides[1]))
    return tuple(SourceTokens(name, sides[0].get(name), sides[1].get(name)) for name in lines)


def _thresholds(first: Ledger, second: Ledger) -> tuple[MovedThreshold, ...]:
    sides = [
        {
            (source.name, rule.reason, rule.measure, rule.languages): rule.threshold
            for source, _, rule in ledger.description.rules()
        }
        for ledger in (first, second)
    ]
    lines = _merged(list(sides[0]), list(sides[1]))
    moved = [line for line in lines if sides[0].get(line) != sides[1].get(line)]
    return tuple(MovedThreshold(*line[:3], *(side.get(line) for side in sides)) for line in moved)


def _merged(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """All of both, in the order of the first; what only the second has stands behind what it follows there."""
    lines = list(first)
    place = 0
    for one in second:
        if one in lines:
            place = lines.index(one) + 1
        else:
            lines.insert(place, one)
            place += 1
    return lines
