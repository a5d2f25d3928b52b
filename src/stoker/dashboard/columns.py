"""A rank's rows as columns in memory: sealed files are read once, and of a growing record only what is new."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from stoker.dashboard.tail import LiveTail, RawEntry, entries_of
from stoker.record.history import final_history
from stoker.record.rows import table_of
from stoker.record.segments import LIVE_FILE, Segment, list_segments, rank_folder

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_MOST_PIECES = 24


class Chunk:
    """Neighbouring rows of one kind: a sealed file, or rows that are not sealed yet."""

    def __init__(self, kind: str, first: int, last: int, source: Path | list[RawEntry], height: int) -> None:
        """`first` and `last` are sequence numbers, both included."""
        self.kind = kind
        self.first = first
        self.last = last
        self.source = source
        self.height = height
        self._names: frozenset[str] | None = None
        self._table: pl.DataFrame | None = None

    @property
    def names(self) -> frozenset[str]:
        """The columns it has."""
        if self._names is None:
            if isinstance(self.source, Path):
                self._names = frozenset(pl.read_parquet_schema(self.source))
            else:
                self._names = frozenset(self._spelled_out().columns)
        return self._names

    def numbers(self, name: str) -> Numbers:
        """A column as float64: NaN where there is no value, Inf where what was recorded is not finite."""
        if name not in self.names:
            return np.full(self.height, np.nan)
        column = self.table([name])[name]
        if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
            return np.full(self.height, np.nan)
        filled = column.cast(pl.Float64).fill_nan(float("inf")).fill_null(float("nan"))
        return np.asarray(filled.to_numpy(), dtype=np.float64)

    def table(self, wanted: Sequence[str] | None = None) -> pl.DataFrame:
        """Columns as they were recorded; all without `wanted`."""
        names = sorted(self.names) if wanted is None else [name for name in wanted if name in self.names]
        if isinstance(self.source, Path):
            return pl.read_parquet(self.source, columns=names)
        return self._spelled_out().select(names)

    def newest(self, count: int) -> pl.DataFrame:
        """The last `count` rows; of a sealed file all, where it has not many more."""
        if isinstance(self.source, Path):
            begin = max(0, self.height - count)
            return pl.scan_parquet(self.source).slice(begin, self.height - begin).collect()
        if self._table is not None:
            return self._table.tail(count)
        return table_of(self.kind, entries_of(self.source[-count:]))

    def row(self, index: int) -> pl.DataFrame:
        """One row, whole."""
        if isinstance(self.source, Path):
            return pl.scan_parquet(self.source).slice(index, 1).collect()
        return self._spelled_out().slice(index, 1)

    def _spelled_out(self) -> pl.DataFrame:
        assert not isinstance(self.source, Path)
        if self._table is None:
            self._table = table_of(self.kind, entries_of(self.source))
            self.height = self._table.height
        return self._table


_Key = tuple[int, int]


@dataclass(frozen=True)
class _Joined:
    """A column over all chunks, and which chunks those were."""

    version: int
    keys: tuple[_Key, ...]
    values: Numbers


class RankColumns:
    """What one rank wrote, by kind of row. `refresh` looks for what is new; everything else only reads memory."""

    def __init__(self, record: Path, rank: int, most_columns: int = 160) -> None:
        """`most_columns` bounds how many columns stay in memory; those not asked for the longest go first."""
        self.rank = rank
        self.folder = rank_folder(record, rank)
        self.tail = LiveTail(self.folder / LIVE_FILE)
        self.damaged: set[str] = set()
        """Names of sealed files that cannot be read."""
        self.version = 0
        self._chunks: dict[str, list[Chunk]] = {}
        self._sealed: tuple[tuple[str, int, int], ...] = ()
        self._joined: OrderedDict[tuple[str, str], _Joined] = OrderedDict()
        self._most_columns = most_columns
        self._taken = 0
        self._lock = threading.RLock()

    def refresh(self) -> bool:
        """Take in what was written since the last time. Returns whether there was anything."""
        with self._lock:
            changed = self.tail.refresh()
            # Segments after the live file: what is sealed in between is seen twice, and not missed.
            segments = list_segments(self.folder)
            sealed = tuple((one.kind, one.first, one.last) for one in segments)
            self._begin_anew_if_replaced(segments)
            if not changed and sealed == self._sealed:
                return False
            if sealed != self._sealed:
                self._sealed = sealed
                self._take_segments(segments)
            self._take_tail()
            self.version += 1
            return True

    @property
    def kinds(self) -> list[str]:
        """The kinds of rows there are."""
        return sorted(self._chunks)

    def names(self, kind: str) -> list[str]:
        """The columns that rows of `kind` have."""
        with self._lock:
            found: set[str] = set()
            for chunk in self._chunks.get(kind, ()):
                with suppress(OSError, pl.exceptions.PolarsError):
                    found |= chunk.names
            return sorted(found)

    def height(self, kind: str) -> int:
        """The number of rows of `kind`."""
        return sum(chunk.height for chunk in self._chunks.get(kind, ()))

    def numbers(self, kind: str, name: str) -> Numbers:
        """A column over all rows of `kind`, in the order written; see `Chunk.numbers`."""
        with self._lock:
            known = self._joined.get((kind, name))
            if known is None or known.version != self.version:
                known = self._join(kind, name, known)
                self._joined[kind, name] = known
            self._joined.move_to_end((kind, name))
            while len(self._joined) > self._most_columns:
                self._joined.popitem(last=False)
            return known.values

    def _join(self, kind: str, name: str, known: _Joined | None) -> _Joined:
        """The column as it is now; of what has been read before, only the chunks that changed are read again."""
        chunks = self._chunks.get(kind, [])
        keys = tuple((chunk.first, chunk.last) for chunk in chunks)
        same = 0
        while known is not None and same < min(len(keys), len(known.keys)) and keys[same] == known.keys[same]:
            same += 1
        height = sum(chunk.height for chunk in chunks[:same])
        parts = [known.values[:height]] if known is not None else []
        parts += [self._read(chunk, name) for chunk in chunks[same:]]
        return _Joined(self.version, keys, np.concatenate(parts) if parts else np.zeros(0))

    def _read(self, chunk: Chunk, name: str) -> Numbers:
        try:
            return chunk.numbers(name)
        except (OSError, pl.exceptions.PolarsError):  # merged away or damaged since: seen at the next refresh
            return np.full(chunk.height, np.nan)

    def row(self, kind: str, index: int) -> pl.DataFrame:
        """The whole row at a place among all rows of `kind`; no row where it cannot be read."""
        with self._lock:
            for chunk in self._chunks.get(kind, ()):
                if index < chunk.height:
                    try:
                        return chunk.row(index)
                    except (OSError, pl.exceptions.PolarsError):
                        break
                index -= chunk.height
        return pl.DataFrame()

    def table(self, kind: str, wanted: Sequence[str] | None = None) -> pl.DataFrame:
        """Rows of `kind` as they were recorded, in the order written."""
        with self._lock:
            tables = []
            for chunk in self._chunks.get(kind, ()):
                try:
                    tables.append(chunk.table(wanted))
                except (OSError, pl.exceptions.PolarsError):
                    continue
        return pl.concat(tables, how="diagonal") if tables else pl.DataFrame()

    def recent(self, kind: str, count: int) -> pl.DataFrame:
        """At least the last `count` rows of `kind`, where there are as many, read from as few files as possible."""
        with self._lock:
            tables: list[pl.DataFrame] = []
            for chunk in reversed(self._chunks.get(kind, [])):
                if sum(table.height for table in tables) >= count:
                    break
                try:
                    tables.insert(0, chunk.newest(count))
                except (OSError, pl.exceptions.PolarsError):
                    continue
        return pl.concat(tables, how="diagonal") if tables else pl.DataFrame()

    def _take_segments(self, segments: Sequence[Segment]) -> None:
        for kind in {one.kind for one in segments}:
            before = {(chunk.first, chunk.last): chunk for chunk in self._chunks.get(kind, ())}
            chunks: list[Chunk] = []
            for one in segments:
                if one.kind != kind:
                    continue
                known = before.get((one.first, one.last))
                chunk = known if known is not None and isinstance(known.source, Path) else self._opened(one)
                if chunk is not None:
                    chunks.append(chunk)
            through = max(one.last for one in segments if one.kind == kind)
            rest = [
                chunk
                for chunk in self._chunks.get(kind, ())
                if isinstance(chunk.source, list) and chunk.last > through
            ]
            self._chunks[kind] = chunks + rest

    def _opened(self, segment: Segment) -> Chunk | None:
        try:
            height = pl.scan_parquet(segment.path).select(pl.len()).collect().item()
        except FileNotFoundError:
            return None
        except (OSError, pl.exceptions.PolarsError):
            self.damaged.add(segment.path.name)
            return None
        return Chunk(segment.kind, segment.first, segment.last, segment.path, int(height))

    def _take_tail(self) -> None:
        """Rows of the live file that no chunk holds yet."""
        through = {kind: max(chunk.last for chunk in chunks) for kind, chunks in self._chunks.items() if chunks}
        begin = bisect_right(self.tail.entries, self._taken, key=lambda entry: entry.sequence)
        fresh: dict[str, list[RawEntry]] = {}
        for entry in self.tail.entries[begin:]:
            if entry.sequence > through.get(entry.kind, 0):
                fresh.setdefault(entry.kind, []).append(entry)
        for kind, entries in fresh.items():
            chunk = Chunk(kind, entries[0].sequence, entries[-1].sequence, entries, len(entries))
            self._chunks[kind] = self._compact([*self._chunks.get(kind, ()), chunk])
        if self.tail.entries:
            self._taken = max(self._taken, self.tail.entries[-1].sequence)

    def _begin_anew_if_replaced(self, segments: Sequence[Segment]) -> None:
        """A record that ends before what was read of it is another one in the same folder."""
        written = [one.last for one in segments] + [entry.sequence for entry in self.tail.entries[-1:]]
        read = [chunk.last for chunks in self._chunks.values() for chunk in chunks]
        if read and max(read) > max(written, default=0):
            self._chunks, self._sealed, self._taken = {}, (), 0

    def _compact(self, chunks: list[Chunk]) -> list[Chunk]:
        """Many small pieces that are not sealed become one."""
        pieces = [chunk for chunk in chunks if isinstance(chunk.source, list)]
        if len(pieces) < _MOST_PIECES:
            return chunks
        entries = [one for chunk in pieces if isinstance(chunk.source, list) for one in chunk.source]
        whole = Chunk(pieces[0].kind, pieces[0].first, pieces[-1].last, entries, len(entries))
        return [chunk for chunk in chunks if isinstance(chunk.source, Path)] + [whole]


@dataclass(frozen=True)
class History:
    """Which step rows count, in ascending order of steps: `rows` are places among all rows."""

    steps: Integers
    rows: Integers | None
    """None where all rows count as they stand."""
    redone: int
    """Rows that were given up: steps that were done again."""

    def of(self, values: Numbers) -> Numbers:
        """A column's values at the rows that count."""
        return values if self.rows is None else values[self.rows]


def history_of(columns: RankColumns) -> History:
    """The history that led to the run's present weights, each step once and ascending."""
    numbers = columns.numbers("step", "step")
    known = np.isfinite(numbers)
    if numbers.size and known.all() and bool((np.diff(numbers) > 0).all()):
        return History(numbers.astype(np.int64), None, 0)
    places = np.flatnonzero(known)
    steps = numbers[places].astype(np.int64)
    kept = final_history(steps)
    places, steps = places[kept], steps[kept]
    if steps.size and not bool((np.diff(steps) > 0).all()):  # a record that was put together from pieces
        _, last = np.unique(steps[::-1], return_index=True)
        chosen = steps.size - 1 - last
        places, steps = places[chosen], steps[chosen]
    return History(steps, places, int(known.sum()) - steps.size)
