"""Whether a run's final history saw every sample once, none twice, none never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stoker.record.given_samples import given_stretches
from stoker.record.reading import Record

_Numbers = npt.NDArray[np.int64]
_Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CoverageReport:
    """Which sample numbers the final history saw. Ranges are (first, last), both included."""

    steps: int
    samples: int
    """Different sample numbers seen."""
    first: int | None
    last: int | None
    lost: _Ranges
    """Ranges between 0 and `last` that no step saw."""
    repeated: _Ranges
    """Ranges that more than one step saw."""
    replayed_steps: int
    """Steps of the final history that had been done before, in a history that was given up."""
    changed_replays: tuple[int, ...]
    """Steps whose batch, done again, was not the batch of the first time."""

    @property
    def exact(self) -> bool:
        """Every sample number from 0 to the last once, and every replay saw the same batch."""
        return not (self.lost or self.repeated or self.changed_replays)

    def as_json(self) -> dict[str, Any]:
        """As a JSON object, `exact` included."""
        return {"exact": self.exact, **self.__dict__}


def samples_seen(record: Record) -> CoverageReport:
    """Check the samples of the final history's steps.

    They are those from `first_sample` to `last_sample` (exclusive), or those that were given instead, in
    `given_samples`.
    """
    every = record.steps(["first_sample", "last_sample", "batch_digest", "attempt"], all_attempts=True)
    table = record.steps(["first_sample", "last_sample", "given_samples"])
    table = table.drop_nulls(["first_sample", "last_sample"])
    starts, stops = _ranges(table)
    lost, repeated, samples = _cover(starts, stops)
    return CoverageReport(
        steps=table.height,
        samples=samples,
        first=int(starts[0]) if starts.size else None,
        last=int(stops.max()) - 1 if stops.size else None,
        lost=lost,
        repeated=repeated,
        replayed_steps=int(table["replayed"].sum()),
        changed_replays=_changed_replays(every),
    )


def _ranges(table: pl.DataFrame) -> tuple[_Numbers, _Numbers]:
    """Every stretch of samples that a step was given, first and last + 1, ascending."""
    others: list[list[int]] = []
    if "given_samples" in table.columns:
        others = [pair for text in table["given_samples"].drop_nulls() for pair in given_stretches(text)]
        table = table.filter(pl.col("given_samples").is_null())
    usual = table.select("first_sample", "last_sample").to_numpy()
    ranges = np.concatenate([usual, np.array(others, dtype=np.int64).reshape(-1, 2)])
    ranges = ranges[np.lexsort((ranges[:, 1], ranges[:, 0]))]
    return ranges[:, 0], ranges[:, 1]


def _cover(starts: _Numbers, stops: _Numbers) -> tuple[_Ranges, _Ranges, int]:
    """Gaps, overlaps and the number of different values covered by half-open ranges sorted by start."""
    if starts.size == 0:
        return (), (), 0
    reached = np.concatenate([[0], np.maximum.accumulate(stops)[:-1]])
    gaps = np.flatnonzero(starts > reached)
    overlaps = np.flatnonzero(np.minimum(stops, reached) > starts)
    lost = tuple((int(reached[i]), int(starts[i]) - 1) for i in gaps)
    repeated = tuple((int(starts[i]), int(min(stops[i], reached[i])) - 1) for i in overlaps)
    covered = np.maximum(stops - np.maximum(starts, reached), 0)
    return lost, repeated, int(covered.sum())


def _changed_replays(every: pl.DataFrame) -> tuple[int, ...]:
    """Steps recorded with more than one batch digest."""
    if "batch_digest" not in every.columns or not every["replayed"].any():
        return ()
    digests = every.drop_nulls("batch_digest").group_by("step").agg(pl.col("batch_digest").n_unique())
    return tuple(digests.filter(pl.col("batch_digest") > 1)["step"].sort().to_list())
