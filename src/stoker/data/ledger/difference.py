"""Two prepared corpora side by side: which documents came, went, or met another fate, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from stoker.data.ledger.index import hash_of
from stoker.data.ledger.reading import Ledger

ABSENT = "absent"
"""The fate of a document in the corpus that does not have it."""
_ROWS_AT_A_TIME = 1 << 22
"""Documents of both corpora that are held against one another at a time."""
_FATE = pl.coalesce(pl.col("reason"), pl.col("verdict"))


@dataclass(frozen=True, slots=True)
class Transition:
    """Documents of one source that had one fate in the first corpus and have another in the second."""

    source: str
    to_source: str
    """Where they are in the second corpus: another source where they moved there with the same text."""
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

    Documents are the same when source and text are, or else source and identifier, or else, in whatever source,
    the text; of several that are alike, the first of one corpus is held against the first of the other, and so on.
    Texts are compared by eight bytes of their SHA-256, identifiers by 64-bit hashes. A few million documents at a
    time are held against one another; of all of them, some tens of bytes each are in memory.
    """
    sources = list(dict.fromkeys(one.name for ledger in (first, second) for one in ledger.description.sources))
    fates = sorted({str(fate) for ledger in (first, second) for fate in ledger.summary().select(_FATE).to_series()})
    fates.append(ABSENT)
    unchanged = changed_text = 0
    moved = []
    for pairs in _all_pairs(_side(first, sources, fates), _side(second, sources, fates), len(fates) - 1):
        same = pairs.filter((pl.col("before") == pl.col("after")) & (pl.col("source") == pl.col("source_after")))
        changed = int(same["changed"].sum())
        changed_text += changed
        unchanged += same.height - changed
        moved.append(
            pairs.filter((pl.col("before") != pl.col("after")) | (pl.col("source") != pl.col("source_after")))
        )
    order = pl.concat(moved).sort("row", "row_after", nulls_last=True)
    transitions = [
        _transition(sources[source], sources[to], fates[before], fates[after], own, count)
        for (source, to, before, after), own in order.group_by(
            "source", "source_after", "before", "after", maintain_order=True
        )
    ]
    return Difference(
        funnel=_funnel(first, second),
        sources=_tokens(first, second),
        thresholds=_thresholds(first, second),
        transitions=tuple(sorted(transitions, key=lambda one: -one.documents)),
        unchanged=unchanged,
        changed_text=changed_text,
    )


def _side(ledger: Ledger, sources: Sequence[str], fates: Sequence[str]) -> pl.DataFrame:
    """A line for each row: source and fate (by their places in the lists), bytes, and what it is known again by.

    `text` is the first eight bytes of the text's SHA-256, null where nothing was read; `content` that with the
    source, `name` the identifier with the source.
    """
    frame = ledger.columns(
        [
            pl.col("source").replace_strict(sources, range(len(sources)), return_dtype=pl.UInt16),
            _FATE.replace_strict(fates, range(len(fates)), return_dtype=pl.UInt16).alias("fate"),
            "bytes",
            pl.col("sha256").bin.head(8).bin.reinterpret(dtype=pl.UInt64).alias("text"),
        ]
    )
    of_source = np.asarray([hash_of(f"source {name}") for name in sources], np.uint64)[frame["source"].to_numpy()]
    hashes, rows = ledger.hashes()
    names = np.empty(len(rows), np.uint64)
    names[rows] = hashes
    return frame.with_columns(
        (pl.col("text") ^ pl.Series("of_source", of_source)).alias("content"),
        pl.Series("name", names ^ of_source),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
    )


def _all_pairs(left: pl.DataFrame, right: pl.DataFrame, absent: int) -> Iterator[pl.DataFrame]:
    """Every document of both once, beside itself in the other or beside nothing.

    Columns `source`, `before`, `source_after`, `after`, `size`, `changed`, `row`, `row_after`.
    """
    for key in ("content", "name", "text"):
        rests: list[tuple[pl.DataFrame, pl.DataFrame]] = []
        parts = max(1, -(-(left.height + right.height) // _ROWS_AT_A_TIME))
        for part in range(parts):
            some, others = (_numbered(side, key, part, parts) for side in (left, right))
            on = [key, "occurrence"]
            pairs = some.join(others, on=on, how="inner", suffix="_after")
            yield _compared(pairs.rename({"fate": "before", "fate_after": "after"}), key)
            rests.append(
                (some.join(others, on=on, how="anti"), others.join(some, on=on, how="anti")),
            )
        left, right = (pl.concat([rest[side] for rest in rests]).drop("occurrence").sort("row") for side in (0, 1))
    nothing = pl.lit(None, pl.UInt32)
    nowhere = pl.lit(absent, pl.UInt16)
    yield _alone(left, pl.col("fate"), nowhere, pl.col("row"), nothing)
    yield _alone(right, nowhere, pl.col("fate"), nothing, pl.col("row"))


def _numbered(side: pl.DataFrame, key: str, part: int, parts: int) -> pl.DataFrame:
    """The lines of a part of all keys, with how many of the same key stand before."""
    own = side if parts == 1 else side.filter(pl.col(key).fill_null(0) % parts == part)
    return own.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).over(key).alias("occurrence"))


def _compared(pairs: pl.DataFrame, key: str) -> pl.DataFrame:
    text = pl.lit(value=False) if key == "text" else (pl.col("text") != pl.col("text_after")).fill_null(value=False)
    size = pl.col("bytes_after").fill_null(pl.col("bytes")).alias("size")
    return pairs.select(
        "source", "before", "source_after", "after", size, text.alias("changed"), "row", "row_after"
    )


def _alone(side: pl.DataFrame, before: pl.Expr, after: pl.Expr, row: pl.Expr, row_after: pl.Expr) -> pl.DataFrame:
    return side.select(
        "source",
        before.alias("before"),
        pl.col("source").alias("source_after"),
        after.alias("after"),
        pl.col("bytes").alias("size"),
        pl.lit(value=False).alias("changed"),
        row.alias("row"),
        row_after.alias("row_after"),
    )


def _transition(source: str, to_source: str, before: str, after: str, own: pl.DataFrame, count: int) -> Transition:
    column = "row_after" if before == ABSENT else "row"
    rows = own[column].to_numpy()
    chosen = rows if len(rows) <= count else rows[np.arange(count) * len(rows) // count]
    picked = tuple(int(row) for row in chosen)
    return Transition(
        source=source,
        to_source=to_source,
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
