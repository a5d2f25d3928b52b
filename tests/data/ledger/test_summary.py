"""Sums of a ledger by classes of text."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from stoker.data.ledger.falls import CONTENT
from stoker.data.ledger.summary import summarised


def test_an_empty_text_is_of_no_class() -> None:
    counts = {f"{name}_characters": [0, 6] for name in CONTENT}
    names = {name: [None, None] for name in ("source", "kind", "language", "verdict", "stage", "reason")}
    sums = {"bytes": [0, 20], "characters": [0, 20], "tokens": [0, 5]}
    found = pl.from_arrow(summarised(pa.table({**names, **sums, **counts})))
    assert isinstance(found, pl.DataFrame)
    assert found.select(list(CONTENT)).rows() == [(False, False, False), (True, True, True)]
