"""The newest rows of a record, for those who need no more: however long a run is, they cost the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stoker.record import Record
from stoker.record.framing import Entry, read_frames
from stoker.record.rows import columns_wanted, table_of
from stoker.record.segments import LIVE_FILE, Segment, list_segments, rank_folder, unsealed


class RecentRecord(Record):
    """As `Record`, but of each kind and rank only the newest rows; each live file is read once."""

    def __init__(self, folder: Path, most_rows: int) -> None:
        super().__init__(folder)
        self._most = most_rows
        self._read: dict[int, tuple[list[Segment], list[Entry]]] = {}

    def rows(self, kind: str, columns: Sequence[str] | None = None, rank: int = 0) -> pl.DataFrame:
        """The newest rows of `kind` that `rank` wrote, in the order written; see `Record.rows`."""
        segments, entries = self._files(rank)
        own = [entry for entry in entries if entry.kind == kind][-self._most :]
        table = table_of(kind, own, columns)
        tables, height = [table.select(columns_wanted(table.columns, columns))], len(own)
        for segment in reversed([one for one in segments if one.kind == kind]):
            if height >= self._most:
                break
            found = _tail_of(segment, columns, self._most - height)
            if found is not None:
                tables.insert(0, found)
                height += found.height
        kept = [found for found in tables if found.height] or tables[-1:]
        return pl.concat(kept, how="diagonal")

    def _files(self, rank: int) -> tuple[list[Segment], list[Entry]]:
        if rank not in self._read:
            folder = rank_folder(self.folder, rank)
            live = read_frames(folder / LIVE_FILE).entries
            segments = list_segments(folder)
            self._read[rank] = segments, unsealed(live, segments)
        return self._read[rank]


def _tail_of(segment: Segment, columns: Sequence[str] | None, rows: int) -> pl.DataFrame | None:
    """The last rows of a segment; None when it is damaged or has been merged away."""
    try:
        frame = pl.scan_parquet(segment.path)
        if columns is not None:
            names = list(pl.read_parquet_schema(segment.path))
            frame = frame.select(columns_wanted(names, columns))
        return frame.tail(rows).collect()
    except (OSError, pl.exceptions.PolarsError):
        return None
