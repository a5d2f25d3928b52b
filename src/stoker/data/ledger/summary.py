"""Sums over a ledger by everything that a funnel is asked for: small however large the ledger is."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from stoker.data.content import CJK_SHARE, CODE_SHARE, FORMULA_SHARE

KEYS = ("source", "kind", "language", "cjk", "formula", "code", "verdict", "stage", "reason")
"""`cjk`, `formula`, `code`: whether the text holds that much of the kind that losing it is losing such text;
an empty text holds nothing of any."""
SUMS = ("documents", "bytes", "characters", "cjk_characters", "formula_characters", "code_characters", "tokens")
_SHARES = {"cjk": CJK_SHARE, "formula": FORMULA_SHARE, "code": CODE_SHARE}


def summarised(table: pa.Table) -> pa.Table:
    """The sums of some rows of a ledger: columns `KEYS` and `SUMS`."""
    wanted = [name for name in (*KEYS, *SUMS) if name in table.column_names]
    frame = pl.from_arrow(table.select(wanted))
    assert isinstance(frame, pl.DataFrame)
    return _summed(frame.with_columns(pl.lit(1, pl.Int64).alias("documents"), *classes()))


def classes() -> list[pl.Expr]:
    """Of which classes of text the document of a row of a ledger is: `cjk`, `formula`, `code`."""
    return [
        ((pl.col("characters") > 0) & (pl.col(f"{name}_characters") >= share * pl.col("characters")))
        .fill_null(value=False)
        .alias(name)
        for name, share in _SHARES.items()
    ]


def summed(summaries: Sequence[pa.Table]) -> pa.Table:
    """Several of `summarised`'s tables as one, in the order in which their keys first came."""
    if not summaries:
        return _SCHEMA.empty_table()
    frame = pl.from_arrow(pa.concat_tables(summaries))
    assert isinstance(frame, pl.DataFrame)
    return _summed(frame)


def _summed(frame: pl.DataFrame) -> pa.Table:
    sums = frame.group_by(KEYS, maintain_order=True).agg(pl.col(SUMS).sum())
    # Sums over nothing but nulls are 0; the types are the same whatever the rows were.
    return sums.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(_SCHEMA)


_SCHEMA = pa.schema(
    [(name, pa.bool_() if name in _SHARES else pa.string()) for name in KEYS]
    + [(name, pa.int64()) for name in SUMS]
)
