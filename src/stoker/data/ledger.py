"""The history of every document ever read: why it was kept or dropped, and where it went.

<corpus>/ledger/part-000000.parquet      one row for each document and each fault, in reading order
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from stoker.errors import StokerError

LEDGER_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("position", pa.string()),
        ("identifier", pa.string()),
        ("sha256", pa.string()),
        ("characters", pa.int64()),
        ("bytes", pa.int64()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("duplicate_source", pa.string()),
        ("duplicate_of", pa.string()),
        ("similarity", pa.float64()),
        ("split", pa.string()),
        ("document", pa.int64()),
        ("tokens", pa.int64()),
    ]
)
"""`sha256`, `characters` and `bytes` are of the text as it was read. `verdict`: kept, held_out, dropped or fault;
`reason` says why for the last two. A repeated document names the one it repeats (`duplicate_source`,
`duplicate_of`). A document that is kept or held out has its `split`, its index there and its `tokens`."""

_DUPLICATES = (
    "held_out_exact_duplicate",
    "held_out_near_duplicate",
    "held_out_near_training_text",
    "exact_duplicate",
    "near_duplicate",
)


class Ledger:
    """Read a prepared corpus's ledger."""

    def __init__(self, corpus: Path) -> None:
        """`corpus` is the folder of a prepared corpus. Raises `StokerError` when it has no ledger."""
        self._parts = sorted((corpus / "ledger").glob("part-*.parquet"))
        if not self._parts:
            raise StokerError(
                f"{corpus / 'ledger'} holds no ledger; delete {corpus} and run `stoker prepare RECIPE` again"
            )

    def rows(self) -> pl.LazyFrame:
        """All rows, to be queried; columns as in `LEDGER_SCHEMA`."""
        return pl.scan_parquet(self._parts)

    def funnel(self) -> list[dict[str, Any]]:
        """From what was read to what is trained on, stage by stage for each source.

        `{source, stage, reason?, documents, bytes}`; bytes are of the text as it was read. For each source,
        `read` is the sum of what follows it but for `fault`, which is no document.
        """
        counted = (
            self.rows()
            .group_by("source", "verdict", "reason", maintain_order=True)
            .agg(pl.len().alias("documents"), pl.col("bytes").sum())
            .collect()
        )
        order: dict[str, list[dict[str, Any]]] = {}
        for row in counted.iter_rows(named=True):
            order.setdefault(row["source"], []).append(row)
        return [entry for source, rows in order.items() for entry in _funnel_of(source, rows)]

    def why(self, name: str) -> list[dict[str, Any]]:
        """Rows of the document with this identifier, or of all documents and faults of this file."""
        return self._listed(self.rows().filter((pl.col("identifier") == name) | (pl.col("file") == name)))

    def files_like(self, name: str) -> list[str]:
        """Files that `name` may mean: the one that an absolute path ends with, or all that end with `name`."""
        files: list[str] = self.rows().select("file").drop_nulls().unique().collect()["file"].sort().to_list()
        if name.startswith("/"):
            inside = [file for file in files if f"/{name}".endswith(f"/{_below(file)}")]
            longest = max((len(_below(file)) for file in inside), default=0)
            return [file for file in inside if len(_below(file)) == longest]
        return [file for file in files if file.endswith((f"/{name}", f":{name}"))]

    def sample(self, reason: str, count: int) -> list[dict[str, Any]]:
        """Up to `count` rows with this reason or verdict, spread evenly over the ledger."""
        found = self.rows().filter((pl.col("reason") == reason) | (pl.col("verdict") == reason)).collect()
        if found.height > count > 0:
            found = found[[index * found.height // count for index in range(count)]]
        return found.head(max(count, 0)).to_dicts()

    def document(self, source: str, split: str, index: int) -> dict[str, Any] | None:
        """The row of one document of a split (`train` or `held_out`), None when there is none."""
        return self.documents(source, split, [index]).get(index)

    def documents(self, source: str, split: str, indices: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Rows of several documents of a split, by index."""
        wanted = list(dict.fromkeys(indices))
        found = self._listed(
            self.rows().filter(
                pl.col("source") == source, pl.col("split") == split, pl.col("document").is_in(wanted)
            )
        )
        return {row["document"]: row for row in found}

    def _listed(self, rows: pl.LazyFrame) -> list[dict[str, Any]]:
        return rows.collect().to_dicts()


def _below(file: str) -> str:
    """A file's name without the steps up from the recipe's folder that it may begin with."""
    while file.startswith("../"):
        file = file.removeprefix("../")
    return file


def _funnel_of(source: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def entry(stage: str, chosen: list[dict[str, Any]], reason: str | None = None) -> dict[str, Any]:
        documents, size = (sum(row[key] for row in chosen) for key in ("documents", "bytes"))
        return {
            "source": source,
            "stage": stage,
            **({} if reason is None else {"reason": reason}),
            "documents": documents,
            "bytes": size,
        }

    by_verdict: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["reason"] or ""):
        by_verdict.setdefault(row["verdict"], []).append(row)
    dropped = by_verdict.get("dropped", [])
    repeated = {row["reason"]: row for row in dropped if row["reason"] in _DUPLICATES}
    faults = by_verdict.get("fault", [])
    funnel = [entry("read", [row for row in rows if row["verdict"] != "fault"])]
    funnel += [entry("fault", [row], row["reason"]) for row in faults]
    funnel += [entry("filter", [row], row["reason"]) for row in dropped if row["reason"] not in _DUPLICATES]
    funnel.append(entry("held_out", by_verdict.get("held_out", [])))
    for reason in _DUPLICATES:
        stage = "held_out_duplicate" if reason.startswith("held_out") else reason
        named = reason if stage == "held_out_duplicate" else None
        if reason in repeated or named is None:
            funnel.append(entry(stage, [repeated[reason]] if reason in repeated else [], named))
    funnel.append(entry("kept", by_verdict.get("kept", [])))
    return funnel
