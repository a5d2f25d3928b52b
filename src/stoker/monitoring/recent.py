"""The newest rows of a record, for those who need no more: however long a run is, they cost the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stoker.record import Record
from stoker.record.framing import Entry, read_frames
from stoker.record.rows import SEQUENCE, columns_wanted, table_of
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


@dataclass
class _Kept:
    """What was asked for of one kind and rank, with the rows' numbers."""

    table: pl.DataFrame
    through: int
    """The number of the last row that it has."""


class FollowedRecord(RecentRecord):
    """As `RecentRecord`, asked the same again and again: it reads the disk once, and then takes what is followed.

    What comes in between two times is kept as it came, and at most the newest rows of it; `settle` after each time.
    """

    def __init__(self, folder: Path, most_rows: int) -> None:
        super().__init__(folder, most_rows)
        self._kept: dict[tuple[int, str, tuple[str, ...] | None], _Kept] = {}
        self._asked: set[tuple[int, str, tuple[str, ...] | None]] = set()
        self._fresh: dict[tuple[int, str], deque[Entry]] = {}

    def take(self, rank: int, entry: Entry) -> None:
        """A row that `rank` wrote, in the order written."""
        self._fresh.setdefault((rank, entry.kind), deque(maxlen=self._most)).append(entry)
        self._read.pop(rank, None)

    def rows(self, kind: str, columns: Sequence[str] | None = None, rank: int = 0) -> pl.DataFrame:
        """As `RecentRecord.rows`, up to what was taken last."""
        key = (rank, kind, None if columns is None else tuple(columns))
        self._asked.add(key)
        kept = self._kept.get(key)
        if kept is None:
            wanted = None if columns is None else [*columns, SEQUENCE]
            kept = self._kept[key] = _Kept(table := super().rows(kind, wanted, rank), _last_of(table))
        fresh = [entry for entry in self._fresh.get((rank, kind), ()) if entry.sequence > kept.through]
        if fresh:
            table = pl.concat([kept.table, table_of(kind, fresh, columns)], how="diagonal").tail(self._most)
            self._kept[key] = kept = _Kept(table, fresh[-1].sequence)
        return kept.table.select(columns_wanted(kept.table.columns, columns))

    def settle(self) -> None:
        """All that was to be asked has been: what came until now is in, and what nobody asked for is let go."""
        newest = {key: entries[-1].sequence for key, entries in self._fresh.items()}
        self._kept = {
            key: kept
            for key, kept in self._kept.items()
            if key in self._asked and kept.through >= newest.get(key[:2], 0)
        }
        self._asked.clear()
        self._fresh.clear()
        self._read.clear()


def _last_of(table: pl.DataFrame) -> int:
    last = table[SEQUENCE].max() if SEQUENCE in table.columns and table.height else 0
    return int(last) if isinstance(last, int) else 0


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
