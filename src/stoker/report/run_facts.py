"""Everything a run's folder says, read once. What is missing or damaged is noted, never fatal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import yaml

from stoker.diagnosis import Diagnosis, diagnose
from stoker.diagnosis.course import course_of
from stoker.record import Attempt, CoverageReport, Record, samples_seen
from stoker.report.saved_checkpoints import SavedCheckpoint, saved_checkpoints
from stoker.run_directory import RunDirectory, value_at

Numbers = npt.NDArray[np.float64]

_STEP_COLUMNS = (
    "loss", "loss_by_source", "tokens_by_source", "gradient_norm", "learning_rate", "tokens", "tokens_seen",
    "first_sample", "last_sample", "clipped", "skipped", "loss_scale", "dead_updates", "seconds",
    "memory_peak_bytes", "ranks", "time",
)  # fmt: skip


@dataclass(frozen=True)
class RunFacts:
    """What one run's folder says."""

    run: RunDirectory
    recipe_text: str
    recipe: dict[str, Any]
    environment: dict[str, Any]
    plan: dict[str, Any]
    corpus: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    """Files that could not be read, in words."""

    @classmethod
    def load(cls, run: RunDirectory) -> RunFacts:
        """Read the folder. Raises `BadInput` when it is not a run."""
        run.require_run()
        notes: list[str] = []
        text = run.recipe.read_text(encoding="utf-8", errors="replace")
        try:
            recipe = yaml.safe_load(text)
        except yaml.YAMLError as error:
            notes.append(f"recipe.yaml cannot be read as YAML: {error}")
            recipe = {}
        facts = cls(
            run=run,
            recipe_text=text,
            recipe=recipe if isinstance(recipe, dict) else {},
            environment=_json_object(run.environment, notes),
            plan=_json_object(run.plan, notes),
            corpus=_json_object(run.corpus, notes),
            notes=notes,
        )
        facts._note_unrecorded_end()
        return facts

    def _note_unrecorded_end(self) -> None:
        """A disk that filled up takes no rows while the training goes on."""
        recorded = self.steps["step"].max() if self.steps.height else 0
        saved = self.checkpoints[-1].step if self.checkpoints else 0
        if isinstance(recorded, int) and recorded < saved:
            self.notes.append(
                f"The record ends at step {recorded:,}, but a checkpoint of step {saved:,} was saved: what "
                "happened in between could not be recorded, and this page lacks it"
            )

    @property
    def name(self) -> str:
        """The run's name as its recipe gives it, or its folder's."""
        return str(self.recipe.get("name") or self.run.path.resolve().name)

    def setting(self, *path: str) -> Any:
        """The recipe's value at `path`, None when it has none."""
        return value_at(self.recipe, *path)

    @property
    def source_names(self) -> list[str]:
        """The recipe's sources, in its order."""
        sources = self.setting("data", "sources")
        named = (
            [source.get("name") for source in sources if isinstance(source, dict)]
            if isinstance(sources, list)
            else []
        )
        return [name for name in named if isinstance(name, str)]

    @property
    def not_held_out(self) -> list[str]:
        """Sources of which the corpus holds no held-out document."""
        found = []
        sources = self.corpus.get("sources")
        for source in sources if isinstance(sources, list) else []:
            splits = source.get("splits") if isinstance(source, dict) else None
            split = splits.get("held_out") if isinstance(splits, dict) else None
            if isinstance(split, dict) and split.get("documents") == 0:
                found.append(str(source.get("name")))
        return found

    def plan_lines(self, kind: str) -> list[str]:
        """The plan's `reasons` or `warnings`."""
        lines = self.plan.get(kind)
        return [str(line) for line in lines] if isinstance(lines, list) else []

    @cached_property
    def record(self) -> Record:
        """The run's record."""
        return Record(self.run.record)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The final history, one row a step, without the gradient norms by module."""
        return self.record.steps(_STEP_COLUMNS)

    @cached_property
    def module_norms(self) -> pl.DataFrame:
        """The final history's gradient norms by module, at the steps where they were recorded."""
        table = self.record.steps(["gradient_norm_by_module"])
        columns = [name for name in table.columns if name.startswith("gradient_norm_by_module.")]
        table = table.select("step", *columns)
        return table.filter(pl.any_horizontal(pl.col(columns).is_not_null())) if columns else table.clear()

    @cached_property
    def evaluations(self) -> pl.DataFrame:
        """Scores on held-out text by step and source."""
        return self.record.evaluations()

    @cached_property
    def samples(self) -> pl.DataFrame:
        """Generated text by step and prompt."""
        return self.record.samples()

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """What happened, over all attempts, by time; what the supervisor recorded is among it."""
        return course_of(self.record, self.run.is_held)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What stands out."""
        return diagnose(self.run)

    @cached_property
    def ranks_by_step(self) -> list[tuple[int, int, int]]:
        """Of the final history: first step, last step, and the number of ranks that did them."""
        if "ranks" not in self.steps.columns:
            return []
        known = self.steps.select("step", "ranks").drop_nulls()
        groups = known.group_by(pl.col("ranks").rle_id().alias("group"), maintain_order=True)
        spans = groups.agg(first=pl.col("step").first(), last=pl.col("step").last(), ranks=pl.col("ranks").first())
        return [(int(first), int(last), int(ranks)) for _, first, last, ranks in spans.iter_rows()]

    @cached_property
    def attempts(self) -> list[Attempt]:
        """The process starts."""
        return self.record.describe_attempts()

    @cached_property
    def coverage(self) -> CoverageReport:
        """Which samples the final history saw."""
        return samples_seen(self.record)

    @property
    def checkpoints(self) -> list[SavedCheckpoint]:
        """The checkpoints that are still there, oldest first."""
        return self._saved[1]

    @property
    def checkpoint_folder(self) -> str:
        """Where they are."""
        return self._saved[0]

    @cached_property
    def _saved(self) -> tuple[str, list[SavedCheckpoint]]:
        return saved_checkpoints(self.run, self.setting("checkpoint", "folder"), self.notes.append)

    def numbers(self, column: str) -> Numbers:
        """A column of `steps` as float64 [steps]; NaN where there is no value; all NaN without the column."""
        if column not in self.steps.columns:
            return np.full(self.steps.height, np.nan)
        values = self.steps[column].cast(pl.Float64).fill_null(float("nan"))
        return np.asarray(values.to_numpy(), dtype=np.float64)

    @cached_property
    def state(self) -> str:
        """How the run stands: finished, running, stopped (non_finite, terminated), interrupted, not_started."""
        last = next((str(e["event"]) for e in reversed(self.events) if e.get("event") in _ENDINGS), None)
        if last == "finished":
            return "finished"
        if self.run.is_held:
            return "running"
        if last in ("non_finite", "terminated"):
            return last
        return "interrupted" if self.steps.height else "not_started"


_ENDINGS = ("started", "resumed", "finished", "terminated", "non_finite")


def _json_object(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        notes.append(f"{path.name} cannot be read: {error}")
        return {}
    if not isinstance(content, dict):
        notes.append(f"{path.name} is not a JSON object")
        return {}
    return content
