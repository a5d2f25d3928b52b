"""Reading a run's record: also while it is written, after a kill, and with ranks missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stoker.errors import StokerError
from stoker.plural import counted
from stoker.record.framing import read_frames
from stoker.record.history import final_history, not_given_up, replayed
from stoker.record.rows import SEQUENCE, columns_wanted, rows_of, table_of
from stoker.record.segments import LIVE_FILE, Segment, list_segments, rank_folder, unsealed

_RANK_FOLDER = re.compile(r"rank-(\d{5,})")
_TRIES = 5
_ABSENT_NAMED = 1024
"""Ranks that are named one by one where they left nothing: what a row says of their number may be anything."""


@dataclass(frozen=True)
class Attempt:
    """One process start of the run, as rank 0 recorded it."""

    number: int
    first_step: int | None
    """None when it ended before its first step was recorded."""
    last_step: int | None
    began: float | None
    """Unix time of its first row."""
    ended: float | None
    """Unix time of its last row."""


@dataclass(frozen=True)
class Gap:
    """Something that should be in the record and is not."""

    kind: str
    """`rank`, `tail`, `segment`, `rows` or `steps`."""
    rank: int
    detail: str


class Record:
    """The record in `folder` (a run's `record/`). Every call reads what is there now; nothing is kept open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def ranks(self) -> list[int]:
        """The ranks that have written anything, in order."""
        if not self.folder.is_dir():
            return []
        matches = (_RANK_FOLDER.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def rows(self, kind: str, columns: Sequence[str] | None = None, rank: int = 0) -> pl.DataFrame:
        """All rows of `kind` that `rank` wrote, in the order written.

        `columns` names fields; one that holds figures by name (`loss_by_source`) stands for all of
        its columns (`loss_by_source.english`, …). Only those columns are read from the disk; None reads
        all, with the row's number `sequence`. A column that no row has is absent. Damaged segments
        are passed over; `gaps` names them.
        """
        for _ in range(_TRIES):
            live = read_frames(rank_folder(self.folder, rank) / LIVE_FILE)
            # Segments after the live file: what is sealed between the two is seen twice and told apart
            # by its number; the other way round it would be missed.
            segments = list_segments(rank_folder(self.folder, rank))
            try:
                tables = [_read_segment(segment, columns) for segment in segments if segment.kind == kind]
                break
            except FileNotFoundError:  # merged into a larger one since it was listed
                continue
        else:
            raise StokerError(f"{self.folder}: the record's files change faster than they can be read; try again")
        readable = [table for table in tables if table is not None]
        entries = [entry for entry in unsealed(live.entries, segments) if entry.kind == kind]
        if entries or not readable:
            table = table_of(kind, entries, columns)
            readable.append(table.select(columns_wanted(table.columns, columns)))
        return pl.concat(readable, how="diagonal")

    def steps(
        self, columns: Sequence[str] | None = None, *, all_attempts: bool = False, rank: int = 0
    ) -> pl.DataFrame:
        """One row a step, in order: the history that led to the run's present weights.

        Where the run went back and did steps again, the last time counts. With `all_attempts`
        every row that was written, in the order written. The columns `step` and `replayed` (the
        step had been done before) are added. A million steps of a few columns take well under 100 ms.
        """
        table = self.rows("step", None if columns is None else ["step", *columns], rank)
        if table["step"].null_count():
            table = table.drop_nulls("step")
        numbers = table["step"].to_numpy()
        repeats = replayed(numbers)
        table = table.with_columns(pl.Series("replayed", repeats))
        if all_attempts or not repeats.any():
            return table
        return table.filter(pl.Series(final_history(numbers)))

    def evaluations(self, *, all_attempts: bool = False) -> pl.DataFrame:
        """Scores on held-out text, one row for each step and source; the last counts (see `steps`)."""
        return self._about_steps("evaluation", ["step", "source"], all_attempts)

    def samples(self, *, all_attempts: bool = False) -> pl.DataFrame:
        """Generated text, one row for each step and prompt; the last counts (see `steps`)."""
        return self._about_steps("sample", ["step", "prompt"], all_attempts)

    def events(self, rank: int = 0) -> list[dict[str, Any]]:
        """Everything that happened, of every attempt, in the order written."""
        return rows_of("event", self.rows("event", rank=rank))

    def attempts(self) -> list[int]:
        """The numbers of the process starts that left rows, in order."""
        return [attempt.number for attempt in self.describe_attempts()]

    def describe_attempts(self) -> list[Attempt]:
        """What each process start did, in order."""
        tables = []
        for kind in ("step", "event"):
            rows = self.rows(kind, ["attempt", "step", "time"])
            if kind == "event":
                rows = rows.with_columns(step=pl.lit(None, dtype=pl.Int64))
            tables.append(rows.select("attempt", "step", "time"))
        summary = (
            pl.concat(tables)
            .drop_nulls("attempt")
            .group_by("attempt")
            .agg(
                pl.col("step").min().alias("first"),
                pl.col("step").max().alias("last"),
                pl.col("time").min().alias("began"),
                pl.col("time").max().alias("ended"),
            )
            .sort("attempt")
        )
        return [Attempt(*row) for row in summary.iter_rows()]

    def next_attempt(self) -> int:
        """The number the next process start gets. Rank 0 asks, and tells the others."""
        return max(self.attempts(), default=0) + 1

    def gaps(self) -> list[Gap]:
        """What is missing or unreadable: ranks, torn tails, damaged segments, rows, steps."""
        found: list[Gap] = []
        present = self.ranks
        for rank in present:
            found += self._gaps_of(rank)
        world = self.rows("step", ["ranks"]).get_column("ranks").max() if 0 in present else None
        expected = range(int(world)) if isinstance(world, int) else range(1)
        there = set(present)
        absent = list(islice((rank for rank in expected if rank not in there), _ABSENT_NAMED))
        lacking = [Gap("rank", rank, f"rank {rank} has left no record") for rank in absent]
        more = len(expected) - sum(rank in expected for rank in there) - len(absent)
        if more:
            lacking.append(Gap("rank", absent[-1] + 1, f"{counted(more, 'more ranks')} have left no record"))
        return lacking + found

    def _about_steps(self, kind: str, key: list[str], all_attempts: bool) -> pl.DataFrame:
        table = self.rows(kind)
        if all_attempts or table.is_empty():
            return table
        steps = self.rows("step", [SEQUENCE, "step"]).drop_nulls("step")
        kept = not_given_up(
            table[SEQUENCE].to_numpy(),
            table["step"].fill_null(0).to_numpy(),
            steps[SEQUENCE].to_numpy(),
            steps["step"].to_numpy(),
        )
        return (
            table.filter(pl.Series(kept))
            .unique(key, keep="last", maintain_order=True)
            .sort("step", maintain_order=True)
        )

    def _gaps_of(self, rank: int) -> list[Gap]:
        folder = rank_folder(self.folder, rank)
        live, segments = read_frames(folder / LIVE_FILE), list_segments(folder)
        gaps = []
        if live.dropped_bytes:
            gaps.append(
                Gap("tail", rank, f"{counted(live.dropped_bytes, 'bytes')} of an unfinished last row left out")
            )
        sequences = [np.array([entry.sequence for entry in unsealed(live.entries, segments)], dtype=np.int64)]
        for segment in segments:
            try:
                table = _read_segment(segment, [SEQUENCE])
            except FileNotFoundError:  # merged into a larger one since it was listed: nothing is missing
                return self._gaps_of(rank)
            if table is None:
                gaps.append(Gap("segment", rank, f"{segment.path} is damaged, its rows are left out"))
            else:
                sequences.append(table[SEQUENCE].to_numpy())
        gaps += [
            Gap("rows", rank, f"rows {first} to {last} are missing")
            for first, last in _holes(np.unique(np.concatenate(sequences)), start=1)
        ]
        steps = self.steps(["step"], rank=rank)["step"].to_numpy()
        gaps += [
            Gap("steps", rank, f"steps {first} to {last} have no row")
            for first, last in _holes(steps, start=1 if rank == 0 or not steps.size else int(steps[0]))
        ]
        return gaps


def _holes(numbers: np.ndarray[Any, np.dtype[np.int64]], start: int) -> list[tuple[int, int]]:
    """The ranges, both ends included, that ascending `numbers` leave out from `start` on."""
    if numbers.size == 0:
        return []
    before = np.concatenate([[start - 1], numbers[:-1]])
    holes = np.flatnonzero(numbers > before + 1)
    return [(int(before[hole]) + 1, int(numbers[hole]) - 1) for hole in holes]


def _read_segment(segment: Segment, wanted: Sequence[str] | None) -> pl.DataFrame | None:
    """The wanted columns of a segment, or None when the file is damaged.

    Raises `FileNotFoundError` when the segment has been merged away.
    """
    try:
        columns = None if wanted is None else columns_wanted(list(pl.read_parquet_schema(segment.path)), wanted)
        return pl.read_parquet(segment.path, columns=columns)
    except FileNotFoundError:
        raise
    except (OSError, pl.exceptions.PolarsError):
        return None
