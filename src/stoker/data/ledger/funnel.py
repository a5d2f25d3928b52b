"""From what was read to what is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from stoker.data.ledger.schema import DUPLICATES, READING, SELECTION

_FIGURES = ("documents", "bytes")


def funnel_of(summary: pl.DataFrame, sources: Sequence[str], operators: Sequence[str]) -> list[dict[str, Any]]:
    """`{source, stage, reason?, documents, bytes}`, source by source; bytes are of the text as it was read.

    Stages in order: `read` (everything but faults: the sum of what follows it but for `fault`), `fault`, `reading`
    (documents that hold no text), `operators` (their names in the order of the chain), `held_out`, what repeats
    other text, `kept`.
    """
    counted = summary.group_by("source", "verdict", "stage", "reason").agg(pl.col(_FIGURES).sum())
    by_source: dict[str, list[dict[str, Any]]] = {name: [] for name in sources}
    for row in counted.sort("reason", "stage", nulls_last=False).iter_rows(named=True):
        by_source[row["source"]].append(row)
    return [entry for source, rows in by_source.items() if rows for entry in _of_source(source, rows, operators)]


def _of_source(source: str, rows: list[dict[str, Any]], operators: Sequence[str]) -> Iterable[dict[str, Any]]:
    def entry(stage: str, chosen: Iterable[dict[str, Any]], reason: str | None = None) -> dict[str, Any]:
        named = {} if reason is None else {"reason": reason}
        chosen = list(chosen)
        return {"source": source, "stage": stage, **named} | {
            figure: sum(row[figure] for row in chosen) for figure in _FIGURES
        }

    def of(verdict: str) -> list[dict[str, Any]]:
        return [row for row in rows if row["verdict"] == verdict]

    yield entry("read", (row for row in rows if row["verdict"] != "fault"))
    for row in of("fault"):
        yield entry("fault", [row], row["reason"])
    dropped = of("dropped")
    for stage in (READING, *operators):
        for row in dropped:
            if row["stage"] == stage:
                yield entry(stage, [row], row["reason"])
    yield entry("held_out", of("held_out"))
    repeated = {row["reason"]: row for row in dropped if row["stage"] == SELECTION}
    for reason in (*DUPLICATES, *sorted(set(repeated) - set(DUPLICATES))):
        stage = "held_out_duplicate" if reason.startswith("held_out") else reason
        always = bool(operators) and reason in DUPLICATES and stage == reason  # else nothing was searched for
        if reason in repeated or always:
            yield entry(
                stage, [repeated[reason]] if reason in repeated else [], None if stage == reason else reason
            )
    yield entry("kept", of("kept"))
