"""What another threshold would change, told from the measures alone: no text is read again.

A document that a rule dropped and that another threshold lets pass goes on to the filters and the selection behind,
which never saw it: what they would say is not known, and is said not to be. A document that another threshold drops
is dropped for certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from stoker.data.ledger.asked import is_asked
from stoker.data.ledger.description import RuleNote, SourceNote
from stoker.data.ledger.reading import Integers, Ledger
from stoker.data.ledger.schema import MEASURE, SELECTION
from stoker.errors import BadInput

Change = Literal["passes", "dropped", "other reason", "dropped before"]
"""What becomes of a document: it passes the operator that dropped it; it is dropped though it was kept or held out;
it is dropped for another reason of the same operator; it is dropped by this operator and no more by a later one."""

_GROUP = ("change", "source", "kind", "language", "reason", "will")
_GROUPED: dict[str, Any] = dict.fromkeys(_GROUP, pl.String) | {
    "documents": pl.UInt32,
    "bytes": pl.Int64,
    "tokens": pl.Int64,
    "row": pl.List(pl.UInt32),
}


@dataclass(frozen=True, slots=True)
class Moved:
    """A threshold and its new value."""

    reason: str
    measure: str
    drops: str
    before: float
    after: float
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """Documents of one source, kind and language to which the same happens."""

    change: Change
    source: str
    kind: str
    language: str | None
    reason: str | None
    """Of the ledger; None for documents that are in the corpus."""
    new_reason: str | None
    documents: int
    bytes: int
    tokens: int
    """In the corpus; of documents that are not, from their bytes at the source's bytes per token."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What other thresholds would change."""

    moved: tuple[Moved, ...]
    changed: tuple[Changed, ...]
    later: tuple[str, ...]
    """Operators and selection behind the filters: what they would say of documents that now pass is not known."""
    orphans: int
    """Duplicates of documents that are now dropped: one of each would take the place of its original."""
    rows: Mapping[str, tuple[int, ...]]
    """A few rows of the ledger for each change, spread evenly."""

    def total(self, change: Change) -> tuple[int, int, int]:
        """Documents, bytes and tokens to which `change` happens."""
        own = [one for one in self.changed if one.change == change]
        return sum(one.documents for one in own), sum(one.bytes for one in own), sum(one.tokens for one in own)

    def as_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return asdict(self)


def what_if(ledger: Ledger, thresholds: Mapping[str, float], count: int = 20) -> WhatIf:
    """What the corpus would be with the `thresholds` of some reasons, and `count` documents for each change.

    Raises `BadInput` for a reason that no rule with a threshold gives.
    """
    description = ledger.description
    known = {rule.reason: rule for _, _, rule in description.rules()}
    if unknown := [reason for reason in thresholds if reason not in known]:
        listed = ", ".join(sorted(known)) or "none"
        raise BadInput(f"no rule with a threshold gives the reason `{unknown[0]}`; there are: {listed}")
    frames, later = [], set()
    for source in description.sources:
        for place, operator in enumerate(source.operators):
            if any(rule.reason in thresholds for rule in operator.rules):
                frames.append(_changes(ledger, source, place, thresholds))
                later |= {one.name for one in source.operators[place + 1 :]}
    changes = pl.concat(frames)
    return WhatIf(
        moved=_moved(ledger, thresholds),
        changed=_summed(ledger, changes),
        later=tuple(stage for stage in (*description.stages, SELECTION) if stage in later | {SELECTION}),
        orphans=_orphans(ledger, changes),
        rows={change: _spread(_rows(changes, change), count) for change in dict.fromkeys(changes["change"])},
    )


def _moved(ledger: Ledger, thresholds: Mapping[str, float]) -> tuple[Moved, ...]:
    found: dict[tuple[str, str, str, float], list[str]] = {}
    for source, _, rule in ledger.description.rules():
        if rule.reason in thresholds:
            found.setdefault((rule.reason, rule.measure, rule.drops, rule.threshold), []).append(source.name)
    return tuple(
        Moved(reason, measure, drops, before, float(thresholds[reason]), tuple(dict.fromkeys(sources)))
        for (reason, measure, drops, before), sources in found.items()
    )


def _changes(ledger: Ledger, source: SourceNote, place: int, thresholds: Mapping[str, float]) -> pl.DataFrame:
    """Groups of a source's rows of which an operator would say another thing than it did, by `_GROUP`."""
    operator = source.operators[place]
    reached = [one.name for one in source.operators[place:]] + [SELECTION]
    moved = [replace(rule, threshold=thresholds.get(rule.reason, rule.threshold)) for rule in operator.rules]
    moving = [(one, other) for one, other in zip(operator.rules, moved, strict=True) if one != other]
    if not moving:
        return pl.DataFrame(schema=_GROUPED)
    here = pl.col("stage") == operator.name
    by_rule = here & pl.col("reason").is_in([rule.reason for rule in operator.rules])
    frame = (
        ledger.rows()
        .with_row_index("row")
        .filter(
            pl.col("source") == source.name,
            pl.col("verdict") != "fault",
            pl.col("stage").is_null() | (pl.col("stage").is_in(reached) & (~here | by_rule)),
        )
        # Few rows lie between two thresholds: the other measures are looked at for these alone.
        .filter(pl.any_horizontal(_rejects(one).ne_missing(_rejects(other)) for one, other in moving))
        # Both sides are judged from the measures as they are kept, in 32 bits, so that rounding changes nothing.
        .with_columns(_verdict(operator.rules).alias("was"), _verdict(moved).alias("will"))
        .filter(pl.col("was").ne_missing(pl.col("will")))
        .select("row", "source", "kind", "language", "verdict", "stage", "reason", "bytes", "tokens", "will")
    )
    change = (
        pl.when(here & pl.col("will").is_null())
        .then(pl.lit("passes"))
        .when(here)
        .then(pl.lit("other reason"))
        .when(pl.col("verdict") == "dropped")
        .then(pl.lit("dropped before"))
        .otherwise(pl.lit("dropped"))
    )
    groups = frame.with_columns(change.alias("change")).group_by(_GROUP, maintain_order=True)
    return ledger.collected(
        groups.agg(pl.len().alias("documents"), pl.col("bytes").sum(), pl.col("tokens").sum(), "row")
    )


def _verdict(rules: Sequence[RuleNote]) -> pl.Expr:
    """The reason of the first rule that rejects a row, null when none does."""
    return pl.coalesce(
        *(pl.when(_rejects(rule)).then(pl.lit(rule.reason)) for rule in rules), pl.lit(None, pl.String)
    )


def _rejects(rule: RuleNote) -> pl.Expr:
    value = pl.col(MEASURE + rule.measure)
    threshold = pl.lit(np.float32(rule.threshold), pl.Float32)
    beyond = value > threshold if rule.drops == "above" else value < threshold
    return beyond if rule.languages is None else beyond & is_asked(rule)


def _summed(ledger: Ledger, changes: pl.DataFrame) -> tuple[Changed, ...]:
    rates = _bytes_per_token(ledger)
    found = []
    sums = changes.drop("row").sort("documents", descending=True, maintain_order=True)
    for row in sums.iter_rows(named=True):
        tokens = row["tokens"] or round(row["bytes"] / rates.get(row["source"], float("inf")))
        found.append(
            Changed(
                row["change"],
                row["source"],
                row["kind"],
                row["language"],
                row["reason"],
                row["will"],
                row["documents"],
                row["bytes"],
                tokens,
            )
        )
    return tuple(found)


def _bytes_per_token(ledger: Ledger) -> dict[str, float]:
    kept = ledger.summary().filter(pl.col("tokens") > 0)
    sums = kept.group_by("source").agg(pl.col("bytes").sum(), pl.col("tokens").sum())
    return {row["source"]: row["bytes"] / row["tokens"] for row in sums.iter_rows(named=True)}


def _orphans(ledger: Ledger, changes: pl.DataFrame) -> int:
    """How many documents were dropped as copies of documents that would now be dropped themselves."""
    lost = _rows(changes, "dropped")
    copies = ledger.rows().filter(pl.col("duplicate_of").is_not_null())
    repeated = ledger.collected(
        copies.group_by(pl.col("duplicate_source").alias("source"), pl.col("duplicate_of").alias("identifier")).agg(
            pl.len().alias("copies")
        )
    )
    if not len(lost) or not repeated.height:
        return 0
    rows = pl.LazyFrame({"row": lost.astype(np.uint32)})
    originals = ledger.rows().select("source", "identifier").with_row_index("row").join(rows, on="row", how="semi")
    matched = originals.join(repeated.lazy(), on=["source", "identifier"])
    return int(ledger.collected(matched.select(pl.col("copies").sum())).item())


def _rows(changes: pl.DataFrame, change: str) -> Integers:
    """All rows with one change, in order."""
    lists = changes.filter(pl.col("change") == change)["row"]
    return np.sort(np.concatenate([np.empty(0, np.int64), *(rows.to_numpy().astype(np.int64) for rows in lists)]))


def _spread(rows: Integers, count: int) -> tuple[int, ...]:
    chosen = rows if len(rows) <= count else rows[np.arange(count) * len(rows) // count]
    return tuple(int(row) for row in chosen)
