"""A run's record as the arrays that detectors take. What is not there is named, never fatal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from stoker.diagnosis.course import RANKS_CHANGED, course_of
from stoker.diagnosis.planned_mixture import PlannedMixture
from stoker.diagnosis.recent_past import Curve, Numbers, as_numbers, as_steps
from stoker.diagnosis.replayed import Replay
from stoker.diagnosis.step_parts import ASIDE, Parts, parts_of
from stoker.diagnosis.text_at import Text
from stoker.recipe import Recipe
from stoker.record import Record, names_of
from stoker.record.given_samples import given_stretches

_COLUMNS = (
    "attempt", "time", "loss", "loss_by_source", "gradient_norm", "learning_rate", "tokens", "tokens_seen",
    "first_sample", "last_sample", "given_samples", "skipped", "loss_scale", "seconds", "memory_peak_bytes",
    "memory_reserved_bytes", "ranks", "batch_digest", "tokens_by_source", "gradient_norm_by_module", "update_norm",
    "weight_norm", "clipped", "arrived", "waited", "host_memory_bytes", "memory_allocated_bytes", "read_ahead",
    "work_seconds",
)  # fmt: skip
_RANK_COLUMNS = (
    "seconds", "memory_peak_bytes", "memory_reserved_bytes", "arrived", "waited", "host_memory_bytes",
    "memory_allocated_bytes", "read_ahead", "work_seconds",
)  # fmt: skip
_MODULE_COLUMNS = (
    "step", "module", "update_to_weight", "attention_logit", "attention_entropy", "logit_largest", "gradient_norm",
)  # fmt: skip
_DOCUMENT_COLUMNS = ("step", "sample", "source", "first_token", "tokens", "loss")
_EXPECTED = ("time", "loss", "gradient_norm", "learning_rate", "tokens", "seconds", "memory_peak_bytes")
WORK = ("data", "forward", "backward", "optimizer")
NOW = {"host_memory_bytes": "host memory in bytes", "memory_allocated_bytes": "allocated memory in bytes"}
"""What memory is at a step, not the most it has been."""
MEMORY = {"memory_peak_bytes": "peak memory in bytes", "memory_reserved_bytes": "reserved memory in bytes"}


@dataclass(frozen=True)
class RunRows:
    """The final history of a run, with what its ranks and its supervisor wrote."""

    table: pl.DataFrame
    """Step rows of rank 0, ascending."""
    by_rank: dict[int, pl.DataFrame] = field(default_factory=dict)
    """Step rows of the other ranks."""
    routing: pl.DataFrame = field(default_factory=pl.DataFrame)
    evaluations: pl.DataFrame = field(default_factory=pl.DataFrame)
    modules: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Statistics of the model's parts, every few steps."""
    documents: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The stretches of documents with the worst loss of each step, of all ranks."""
    machines: dict[int, pl.DataFrame] = field(default_factory=dict)
    """What ranks' machines told of themselves."""
    events: Sequence[dict[str, Any]] = ()
    recipe: Recipe | None = None
    """As it was trained; None where it cannot be read."""
    planned: PlannedMixture | None = None
    """What the recipe plans of the mixture, where it changes over the run."""
    text: Text | None = None
    """Reads what steps were trained on; None where the corpus is not at hand."""
    replays: Mapping[int, Replay] = field(default_factory=dict)
    """What computing suspected steps once more has said, by step."""
    now: float | None = None
    """Unix time, for a run that is under way."""

    @classmethod
    def load(
        cls, record: Record, now: float | None = None, recipe: Recipe | None = None, text: Text | None = None
    ) -> RunRows:
        """Read the columns that detectors take."""
        machines = {rank: record.rows("machine", rank=rank) for rank in record.ranks}
        documents = [record.rows("document", _DOCUMENT_COLUMNS, rank=rank) for rank in record.ranks]
        return cls(
            table=_ordered(record.steps(_COLUMNS)),
            by_rank={rank: _ordered(record.steps(_RANK_COLUMNS, rank=rank)) for rank in record.ranks if rank != 0},
            routing=record.rows("routing", ["step", "module", "largest_load", "smallest_load", "entropy"]),
            evaluations=record.evaluations(),
            modules=record.rows("module", _MODULE_COLUMNS),
            documents=pl.concat([one for one in documents if one.height], how="diagonal_relaxed")
            if any(one.height for one in documents)
            else pl.DataFrame(),
            machines={rank: own for rank, own in machines.items() if own.height},
            recipe=recipe,
            text=text,
            events=course_of(record, under_way=now is not None),
            now=now,
        )

    def numbers(self, column: str) -> Numbers:
        """A column over all rows; NaN where it has no value."""
        return as_numbers(self.table, column)

    @property
    def loss_by_source(self) -> dict[str, Numbers]:
        """The loss of each source at each row; NaN where a row has none of it."""
        names = names_of(self.table, "loss_by_source")
        return {name: self.numbers(f"loss_by_source.{name}") for name in names}

    def trains_on(self, source: str) -> bool:
        """Whether any row has tokens of the source."""
        return bool(np.nansum(self.numbers(f"tokens_by_source.{source}")) > 0)

    def samples_of(self, step: int) -> int:
        """How many samples the row of `step` has; 0 where that is not known."""
        row = int(np.searchsorted(self.steps, step))
        if row >= self.steps.size or self.steps[row] != step:
            return 0
        count = self.numbers("last_sample")[row] - self.numbers("first_sample")[row]
        return int(count) if np.isfinite(count) else 0

    def given_samples(self, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        """The samples of rows `begin` to `end` (exclusive) as ranges, both ends included, where some of them were
        given others than the recipe gives them; else none."""
        column = "given_samples"
        if column not in self.table.columns or self.table[column][begin:end].null_count() == end - begin:
            return ()
        found: list[list[int]] = []
        for first, after, others in self.table.select("first_sample", "last_sample", column)[begin:end].iter_rows():
            if others is not None:
                found += given_stretches(others)
            elif first is not None and after is not None:
                found.append([first, after])
        return tuple(sorted({(int(first), int(after) - 1) for first, after in found}))

    def curve(self, column: str) -> Curve:
        """A column at the rows that have a value, NaN and Inf among them."""
        return curve_of(self.table, column)

    @property
    def steps(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Every row's step."""
        return as_steps(self.table["step"].to_numpy()) if self.table.height else as_steps([])

    @property
    def spacing(self) -> int:
        """Steps from one row to the next, as a rule."""
        return max(1, int(np.median(np.diff(self.steps)))) if self.table.height > 1 else 1

    def phases(self) -> dict[str, Numbers]:
        """Seconds of each phase of a step by name."""
        names = [name for name in names_of(self.table, "seconds") if name not in ("total", *ASIDE)]
        return {name: self.numbers(f"seconds.{name}") for name in names}

    def aside(self) -> Numbers:
        """Seconds of evaluation and saving."""
        return sum((np.nan_to_num(self.numbers(f"seconds.{name}")) for name in ASIDE), np.zeros(self.table.height))

    def step_seconds(self) -> Curve:
        """Seconds of each step without evaluation and saving; from the rows' times where no row has them."""
        total = self.numbers("seconds.total")
        if np.isfinite(total).any():
            return Curve(self.steps, total - self.aside())
        gaps = np.full(self.table.height, np.nan)
        gaps[1:] = np.diff(self.numbers("time")) / np.maximum(np.diff(self.steps), 1)
        return Curve(self.steps, gaps)

    def step_tokens(self) -> Numbers:
        """Tokens of a step at each row; NaN where neither they nor the tokens seen were recorded."""
        tokens = self.numbers("tokens")
        if self.table.height < 2 or np.isfinite(tokens).any():
            return tokens
        each = np.diff(self.numbers("tokens_seen")) / np.maximum(np.diff(self.steps), 1)
        return np.concatenate([each[:1], each])

    @property
    def of_ranks(self) -> dict[int, pl.DataFrame]:
        """Step rows of every rank that has any."""
        return {rank: table for rank, table in {0: self.table, **self.by_rank}.items() if table.height}

    def work_by_rank(self) -> dict[int, Curve]:
        """Seconds of each rank's own work."""
        return {rank: _work(table) for rank, table in self.of_ranks.items()}

    def memory_by_rank(self, column: str) -> dict[int, Curve]:
        """Memory of each rank."""
        return {rank: curve_of(table, column) for rank, table in self.of_ranks.items()}

    @cached_property
    def parts(self) -> dict[int, Parts]:
        """What of each rank's steps took how long."""
        return {rank: parts_of(table) for rank, table in self.of_ranks.items()}

    def layouts(self) -> list[tuple[int, int]]:
        """The first and last steps of the stretches that were done in one layout."""
        steps, ranks = self.steps, self.numbers("ranks")
        if not steps.size:
            return []
        begins = {int(steps[row]) for row in (np.flatnonzero(np.nan_to_num(np.diff(ranks))) + 1).tolist()}
        changed = (event.get("step") for event in self.events if event.get("event") == RANKS_CHANGED)
        begins |= {step + 1 for step in changed if isinstance(step, int) and steps[0] <= step < steps[-1]}
        edges = [int(steps[0]), *sorted(begins), int(steps[-1]) + 1]
        return [(first, after - 1) for first, after in pairwise(edges)]

    @property
    def gradient_modules(self) -> list[str]:
        """The parts of the model whose gradient norms step rows hold."""
        return names_of(self.table, "gradient_norm_by_module")

    def resumed(self) -> list[int]:
        """The steps from which an attempt went on with what was saved."""
        steps = (event.get("step") for event in self.events if event.get("event") in ("resumed", "went_back"))
        return [step for step in steps if isinstance(step, int)]

    def by_module(self, column: str) -> dict[str, Curve]:
        """A statistic of each part of the model that has it."""
        if not {"module", "step", column} <= set(self.modules.columns):
            return {}
        known = self.modules.drop_nulls(["module", "step", column])
        return {
            str(name): curve_of(own.unique("step", keep="last").sort("step"), column)
            for (name,), own in known.group_by("module", maintain_order=True)
        }

    def missing(self) -> list[str]:
        """What rows usually have and no row of this run has."""
        present = {column.partition(".")[0] for column in self.table.columns if self.table[column].count()}
        return [name for name in _EXPECTED if name not in present] if self.table.height else ["steps"]


def curve_of(table: pl.DataFrame, column: str) -> Curve:
    """A column of a table with `step`, at the rows that have a value."""
    if column not in table.columns or not table.height:
        return Curve(as_steps([]), np.zeros(0))
    known = table.select("step", pl.col(column).cast(pl.Float64)).drop_nulls()
    return Curve(as_steps(known["step"].to_numpy()), known[column].to_numpy().astype(np.float64))


def _ordered(table: pl.DataFrame) -> pl.DataFrame:
    """Ascending, each step once: a record that was put together from pieces may not be."""
    if table.height > 1 and not table["step"].is_sorted():
        table = table.unique("step", keep="last", maintain_order=True).sort("step")
    return table


def _work(table: pl.DataFrame) -> Curve:
    steps = as_steps(table["step"].to_numpy())
    parts = [as_numbers(table, f"seconds.{name}") for name in WORK if f"seconds.{name}" in table.columns]
    return Curve(steps, np.sum(parts, axis=0) if parts else np.full(steps.size, np.nan))
