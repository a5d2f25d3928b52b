"""Sealed parts of the record: parquet files that hold the rows of one kind and are never changed.

A segment `step-000000000001-000000004096.parquet` holds every row of kind `step` whose sequence
number lies in that range, both ends included. Rows that stand in a segment may also still stand
in the live file, when the writer was killed between the two; the segment's range says so, and
readers and writers go by it. Small segments are merged into larger ones eight at a time, twice, so
that a long run has few files; a segment whose range lies inside another's has been merged into it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stoker.durable_files import durable_file
from stoker.record.framing import Entry
from stoker.record.rows import SEQUENCE, table_of

LIVE_FILE = "live.frames"
MERGED_AT_ONCE = 8
_MERGED_TIMES = 2  # A row is rewritten at most twice, and no merge holds more than about 10^5 rows in memory.
_NAME = re.compile(r"([a-z][a-z0-9_]*)-(\d{12,})-(\d{12,})\.parquet")
_ROW_GROUP = 65_536


@dataclass(frozen=True)
class Segment:
    """One sealed file and the sequence numbers it answers for."""

    path: Path
    kind: str
    first: int
    last: int


SUPERVISOR = -1
"""Stands for the supervisor of the ranks where a rank's number is asked for."""
MONITOR = -2
"""Stands for the monitor of the run, likewise."""
_OTHER_FOLDERS = {SUPERVISOR: "supervisor", MONITOR: "monitor"}


def rank_folder(record: Path, rank: int) -> Path:
    """Where one rank writes, or the supervisor or monitor of all."""
    return record / _OTHER_FOLDERS.get(rank, f"rank-{rank:05d}")


def list_segments(folder: Path) -> list[Segment]:
    """The segments of one rank's folder in order of kind and sequence, without those merged into others."""
    found: list[Segment] = []
    if not folder.is_dir():
        return found
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match:
            found.append(Segment(path, match[1], int(match[2]), int(match[3])))
    found.sort(key=lambda segment: (segment.kind, segment.first, -segment.last))
    kept: list[Segment] = []
    for segment in found:
        inside = kept and kept[-1].kind == segment.kind and segment.last <= kept[-1].last
        if not inside:
            kept.append(segment)
    return kept


def sealed_through(segments: Sequence[Segment]) -> dict[str, int]:
    """For each kind, the sequence number up to which all of its rows stand in segments."""
    through: dict[str, int] = {}
    for segment in segments:
        through[segment.kind] = max(through.get(segment.kind, 0), segment.last)
    return through


def unsealed(entries: Sequence[Entry], segments: Sequence[Segment]) -> list[Entry]:
    """The live entries that no segment holds yet."""
    through = sealed_through(segments)
    return [entry for entry in entries if entry.sequence > through.get(entry.kind, 0)]


def seal(folder: Path, entries: Sequence[Entry]) -> None:
    """Write a segment for each kind among `entries`. Doing it again after a kill writes only what is missing."""
    segments = list_segments(folder)
    through = sealed_through(segments)
    pending = unsealed(entries, segments)
    if not pending:
        return
    first, last = entries[0].sequence, entries[-1].sequence
    for kind in sorted({entry.kind for entry in pending}):
        table = table_of(kind, [entry for entry in pending if entry.kind == kind])
        start = max(first, through.get(kind, 0) + 1)
        _write(folder / _name(kind, start, last), table)


def merge(folder: Path, seal_rows: int) -> None:
    """Merge runs of eight neighbouring segments of a size into one, then delete the eight."""
    by_kind: dict[str, list[Segment]] = {}
    for segment in list_segments(folder):
        by_kind.setdefault(segment.kind, []).append(segment)
    for segments in by_kind.values():
        while run := _mergeable(segments, seal_rows):
            merged = _merged(folder, run)
            segments[-len(run) :] = [merged]
    _remove_merged(folder)


def _mergeable(segments: Sequence[Segment], seal_rows: int) -> Sequence[Segment]:
    """The newest segments, when eight or more are smaller than eight sealings, or than eight of those."""
    for level in range(1, _MERGED_TIMES + 1):
        tail = len(segments)
        while tail and _span(segments[tail - 1]) < seal_rows * MERGED_AT_ONCE**level:
            tail -= 1
        if len(segments) - tail >= MERGED_AT_ONCE:
            return segments[tail:]
    return ()


def _span(segment: Segment) -> int:
    return segment.last - segment.first + 1


def _merged(folder: Path, run: Sequence[Segment]) -> Segment:
    first, last = run[0].first, run[-1].last
    path = folder / _name(run[0].kind, first, last)
    tables = [pl.read_parquet(segment.path, memory_map=False) for segment in run]
    _write(path, pl.concat(tables, how="diagonal").sort(SEQUENCE))
    return Segment(path, run[0].kind, first, last)


def _remove_merged(folder: Path) -> None:
    kept = {segment.path for segment in list_segments(folder)}
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name) and path not in kept:
            path.unlink(missing_ok=True)


def _name(kind: str, first: int, last: int) -> str:
    return f"{kind}-{first:012d}-{last:012d}.parquet"


def _write(path: Path, table: pl.DataFrame) -> None:
    with durable_file(path) as stream:
        table.write_parquet(stream, compression="zstd", compression_level=1, row_group_size=_ROW_GROUP)
