"""Writes a ledger row by row, in memory that hardly grows with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stoker.data.ledger.cuts import cuts_in, cutting, summed_cuts
from stoker.data.ledger.description import Description, SourceNote, Stretch, measures_of
from stoker.data.ledger.hashing import hashes_of
from stoker.data.ledger.index import MOST_ROWS, PLACE, Hashes, Places, write_identifiers
from stoker.data.ledger.origins import write_origins
from stoker.data.ledger.schema import (
    CUT_SUMS,
    DESCRIPTION,
    FILES,
    GROUP_ROWS,
    IDENTIFIERS,
    PART_ROWS,
    PLACES,
    SUMMARY,
    ledger_schema,
    origins_name,
    part_name,
)
from stoker.data.ledger.summary import summarised, summed
from stoker.durable_files import durable_file, write_json
from stoker.errors import StokerError

_FEW_VALUES = ("source", "kind", "language", "file", "verdict", "stage", "reason", "duplicate_source", "split")
"""Columns in which the same values stand again and again."""
_SUMMARIES_HELD = 64


class LedgerWriter:
    """Writes the rows of a corpus into `folder`; nothing is a ledger before `close` has returned."""

    def __init__(
        self, folder: Path, sources: Sequence[SourceNote], part_rows: int = PART_ROWS, group_rows: int = GROUP_ROWS
    ) -> None:
        """`sources` in the order in which their rows will come; `part_rows` is a multiple of `group_rows`."""
        self._folder, self._sources = folder, tuple(sources)
        self._part_rows, self._group_rows = part_rows, group_rows
        self.schema = ledger_schema(measures_of(sources))
        """Of the tables that `add` takes; measures that a table lacks are null."""
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._rows = self._parts = 0
        self._hashes: list[Hashes] = []
        self._summaries: list[pa.Table] = []
        self._cuts, self._cut_sums = cutting(measures_of(sources)), list[pa.Table]()
        self._places: dict[tuple[str, str], list[Places]] = defaultdict(list)
        self._runs: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Add rows after those that came before. Within a split, documents come in their order."""
        missing = [field for field in self.schema if field.name not in table.column_names]
        for field in missing:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        table = table.select(self.schema.names).cast(self.schema)
        self._note(table)
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._rows += table.num_rows
        if self._rows > MOST_ROWS:
            raise StokerError(f"a ledger holds at most {MOST_ROWS:,} rows; prepare the sources as several corpora")
        while self._waiting_rows >= self._part_rows:
            self._write_part()

    def close(self) -> Description:
        """Write what is left and the indexes; returns what the ledger says of itself."""
        if self._waiting_rows or not self._parts:
            self._write_part()
        with durable_file(self._folder / IDENTIFIERS) as stream:
            write_identifiers(stream, np.concatenate([np.empty(0, np.uint64), *self._hashes]))
        self._hashes = []
        self._write_table(_joined(self._runs), FILES)
        self._write_table(summed(self._summaries), SUMMARY)
        self._write_table(summed_cuts(self._cut_sums), CUT_SUMS)
        description = Description(
            self._rows, self._sources, self._write_places(), self._part_rows, self._group_rows
        )
        write_json(self._folder / DESCRIPTION, description.as_json())
        return description

    def _note(self, table: pa.Table) -> None:
        """Take down of a table what the indexes need."""
        names = table["identifier"].combine_chunks()
        self._hashes.append(hashes_of(names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names))
        self._summaries.append(summarised(table))
        self._cut_sums.append(cuts_in(table, self._cuts))
        if len(self._summaries) >= _SUMMARIES_HELD:
            self._summaries = [summed(self._summaries)]
            self._cut_sums = [summed_cuts(self._cut_sums)]
        self._runs.append(_runs(table["file"], self._rows))
        sources_and_splits = pl.from_arrow(table.select(["source", "split"]))
        assert isinstance(sources_and_splits, pl.DataFrame)
        placed = sources_and_splits.with_row_index("row", self._rows).drop_nulls()
        for (source, split), own in placed.group_by("source", "split", maintain_order=True):
            self._places[str(source), str(split)].append(own["row"].to_numpy().astype(PLACE))

    def _write_part(self) -> None:
        whole = pa.concat_tables(self._waiting) if self._waiting else self.schema.empty_table()
        part, rest = whole.slice(0, self._part_rows), whole.slice(self._part_rows)
        self._write_table(part, part_name(self._parts))
        with durable_file(self._folder / origins_name(self._parts)) as stream:
            write_origins(stream, part)
        self._waiting, self._waiting_rows = [rest] if rest.num_rows else [], rest.num_rows
        self._parts += 1

    def _write_places(self) -> tuple[Stretch, ...]:
        stretches, first = [], 0
        with durable_file(self._folder / PLACES) as stream:
            for (source, split), rows in self._places.items():
                for some in rows:
                    stream.write(some.tobytes())
                documents = sum(len(some) for some in rows)
                stretches.append(Stretch(source, split, first, documents))
                first += documents
        return tuple(stretches)

    def _write_table(self, table: pa.Table, name: str) -> None:
        with durable_file(self._folder / name) as stream:
            pq.write_table(
                table.unify_dictionaries(),
                stream,
                compression="zstd",
                row_group_size=self._group_rows,
                use_dictionary=[column for column in _FEW_VALUES if column in table.column_names],
                write_statistics=False,
            )


def _runs(files: pa.ChunkedArray, first_row: int) -> pa.Table:
    """Runs of rows of one and the same file: `file`, `first`, `rows`."""
    runs = [pc.run_end_encode(chunk) for chunk in files.chunks]
    ends = [run.run_ends.to_numpy().astype(np.int64) for run in runs]
    lengths = np.concatenate([np.empty(0, np.int64), *(np.diff(end, prepend=0) for end in ends)])
    names = pa.chunked_array([run.values for run in runs], pa.string())
    return pa.table({"file": names, "first": first_row + np.cumsum(lengths) - lengths, "rows": lengths})


def _joined(runs: list[pa.Table]) -> pa.Table:
    """All runs, with those put together that are one file's and follow each other."""
    if not runs:
        return _runs(pa.chunked_array([], pa.string()), 0)
    table = pa.concat_tables(runs).combine_chunks()
    names = table["file"]
    fresh = np.ones(len(table), bool)
    if len(table) > 1:
        fresh[1:] = pc.not_equal(names.slice(1), names.slice(0, len(table) - 1)).to_numpy()
    begins = np.flatnonzero(fresh)
    lengths = np.add.reduceat(table["rows"].to_numpy(), begins) if len(begins) else np.empty(0, np.int64)
    chosen = table.take(pa.array(begins))
    return pa.table({"file": chosen["file"], "first": chosen["first"], "rows": lengths})
