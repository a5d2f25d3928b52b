"""In how many of the documents that stay something was cut out or masked, by all that such cuts are split by."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from stoker.data.ledger.schema import CUTS, MEASURE
from stoker.data.ledger.summary import classes

_GROUPS = ("source", "kind", "language", "cjk", "formula", "code")
_CUTTING = ("lines.", "personal_data.")
"""Begin the names of measures that are above 0 where an operator took something out of a document."""
_SCHEMA = pa.schema(
    [(name, pa.string() if name in ("source", "kind", "language") else pa.bool_()) for name in _GROUPS]
    + [("cut", pa.string()), ("asked", pa.int64()), ("documents", pa.int64()), ("bytes", pa.int64())]
)
"""`asked`: documents that stay and were looked at for the cut; `documents`, `bytes`: those of them that it was made
in, and the bytes of these as they were read."""


def cutting(measures: Sequence[str]) -> list[str]:
    """Names of all cuts: those of an operator's measures, and those of selection."""
    return [*(name for name in measures if name.startswith(_CUTTING)), *CUTS]


def cuts_in(table: pa.Table, cuts: Sequence[str]) -> pa.Table:
    """The cuts made in some rows of a ledger, in the order of `cuts`: columns `_SCHEMA`."""
    column_of = {name: name if name in CUTS else MEASURE + name for name in cuts}
    wanted = ["source", "kind", "language", "verdict", "bytes", "characters"]
    frame = pl.from_arrow(
        table.select([*wanted, "cjk_characters", "formula_characters", "code_characters", *column_of.values()])
    )
    assert isinstance(frame, pl.DataFrame)
    stays = frame.filter(pl.col("verdict").is_in(["kept", "held_out"])).with_columns(classes())
    # Selection leaves a null where it cut nothing, an operator where it did not look.
    asked = [pl.len() if name in CUTS else pl.col(column).is_not_null().sum() for name, column in column_of.items()]
    made = [pl.col(column) > 0 for column in column_of.values()]
    sums = stays.group_by(_GROUPS, maintain_order=True).agg(
        *(one.alias(f"asked {number}") for number, one in enumerate(asked)),
        *(one.sum().alias(f"documents {number}") for number, one in enumerate(made)),
        *(pl.col("bytes").filter(one).sum().alias(f"bytes {number}") for number, one in enumerate(made)),
    )
    found = [
        sums.select(
            *_GROUPS,
            pl.lit(name).alias("cut"),
            *(pl.col(f"{what} {number}").cast(pl.Int64).alias(what) for what in ("asked", "documents", "bytes")),
        )
        for number, name in enumerate(column_of)
    ]
    return _as_written(pl.concat(found))


def summed_cuts(tables: Sequence[pa.Table]) -> pa.Table:
    """Several of `cuts_in`'s tables as one, in the order in which their groups first came."""
    frame = pl.from_arrow(pa.concat_tables([_SCHEMA.empty_table(), *tables]))
    assert isinstance(frame, pl.DataFrame)
    sums = frame.group_by(*_GROUPS, "cut", maintain_order=True).agg(pl.col("asked", "documents", "bytes").sum())
    return _as_written(sums)


def _as_written(frame: pl.DataFrame) -> pa.Table:
    return frame.select(_SCHEMA.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(_SCHEMA)
