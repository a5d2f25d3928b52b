"""Follows what a writer of the record appends, without reading anything twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from stoker.record.framing import MAGIC, Entry, whole_frames
from stoker.record.rows import SEQUENCE, rows_of
from stoker.record.segments import LIVE_FILE, list_segments, rank_folder

_ROWS_AT_ONCE = 4096
_TRIES = 5


class Follower:
    """New rows of one rank (or `SUPERVISOR`), in order, each once, also across sealing and the writer's death."""

    def __init__(self, record: Path, rank: int, after: int = 0) -> None:
        """Rows whose number is above `after` are new."""
        self.rank = rank
        self.after = after
        self._folder = rank_folder(record, rank)
        self._file: tuple[int, int] | None = None
        """Device and inode of the live file that was read last."""
        self._offset = 0

    def new_rows(self) -> Iterator[Entry]:
        """What was written since the last call. A torn tail is left for the next one."""
        path = self._folder / LIVE_FILE
        try:
            status = path.stat()
        except OSError:
            return
        known = (status.st_dev, status.st_ino) == self._file
        if known and status.st_size == self._offset:
            return
        if not known or status.st_size < self._offset:
            yield from self._sealed()
            self._file, self._offset = (status.st_dev, status.st_ino), 0
        yield from self._live(path)

    def skip_to_newest(self, rows: int) -> None:
        """Take all but about the newest `rows` for read: a run may have begun weeks ago."""
        last = 0
        for segment in list_segments(self._folder):
            last = max(last, segment.last)
        for entry, _ in _frames_of(self._folder / LIVE_FILE, 0):
            last = max(last, entry.sequence)
        self.after = max(self.after, last - rows)

    def _live(self, path: Path) -> Iterator[Entry]:
        for entry, stop in _frames_of(path, self._offset):
            self._offset = stop
            if entry.sequence > self.after:
                self.after = entry.sequence
                yield entry

    def _sealed(self) -> Iterator[Entry]:
        """Rows that were sealed before they could be seen in the live file: by kind, then in order."""
        highest, through = self.after, dict[str, int]()
        for _ in range(_TRIES):
            merged_away = False
            for segment in list_segments(self._folder):
                start = through.get(segment.kind, self.after)
                if segment.last <= start:
                    continue
                try:
                    table = pl.read_parquet(segment.path).filter(pl.col(SEQUENCE) > start)
                except FileNotFoundError:
                    merged_away = True
                    break
                except (OSError, pl.exceptions.PolarsError):  # damaged: the reader of gaps tells of it
                    continue
                for row in _rows(segment.kind, table):
                    highest = max(highest, row.sequence)
                    yield row
                through[segment.kind] = segment.last
            if not merged_away:
                break
        self.after = highest


def _rows(kind: str, table: pl.DataFrame) -> Iterator[Entry]:
    for part in table.iter_slices(_ROWS_AT_ONCE):
        for row in rows_of(kind, part):
            yield Entry(kind, int(row.pop(SEQUENCE)), row)


def _frames_of(path: Path, offset: int) -> Iterator[tuple[Entry, int]]:
    """Whole frames from `offset` on, each with the offset of its end in the file."""
    try:
        with open(path, "rb") as stream:
            stream.seek(offset)
            content = stream.read()
    except OSError:
        return
    if offset == 0 and not content.startswith(MAGIC):
        return
    begin = len(MAGIC) if offset == 0 else 0
    for entry, stop in whole_frames(content, begin):
        yield entry, offset + stop
