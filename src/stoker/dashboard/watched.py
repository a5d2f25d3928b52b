"""One run as the dashboard sees it: its columns in memory, its axes, its state, what happened to it."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import yaml
from pydantic import ValidationError

from stoker.dashboard.columns import History, Integers, Numbers, RankColumns, history_of
from stoker.diagnosis.course import Event, course_of, readable
from stoker.recipe import Model
from stoker.recipe.size import flops_per_token, parameter_count
from stoker.record import MONITOR, SUPERVISOR, Record
from stoker.record.history import not_given_up
from stoker.record.rows import SEQUENCE
from stoker.record.segments import LIVE_FILE, rank_folder
from stoker.run_directory import RunDirectory, value_at

UNITS = ("step", "tokens", "hours", "flops")
_COLUMNS_OF_OTHER_RANKS = 8
_ENDINGS = ("started", "resumed", "finished", "terminated", "non_finite")
_Made = TypeVar("_Made")


class WatchedRun:
    """A run whose record is read piece by piece. Safe to use from several threads."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.record = Record(directory.record)
        self.id = hashlib.sha256(str(directory.path.resolve()).encode(errors="surrogateescape")).hexdigest()[:12]
        self.columns = RankColumns(directory.record, 0)
        self.lock = threading.RLock()
        self._others: dict[int, RankColumns] = {}
        self._made: dict[Any, tuple[Any, Any]] = {}
        self._born = secrets.token_hex(4)  # Another server counts its versions anew, and pages outlive servers.
        self.under_way = False
        self.removed = False
        """Whether the folder is gone; what was read of it stays."""
        self.refreshed = 0.0

    def refresh(self) -> bool:
        """Read what is new of rank 0. Returns whether there was anything, or the run began, ended or is gone."""
        with self.lock:
            before = self.under_way, self.removed
            self.removed = not self.directory.path.is_dir()
            self.under_way = not self.removed and self.directory.is_held
            self.refreshed = time.time()
            changed = not self.removed and self.columns.refresh()
            return changed or before != (self.under_way, self.removed)

    def rank(self, rank: int) -> RankColumns:
        """The columns of a rank, as of now."""
        if rank == 0:
            return self.columns
        with self.lock:
            if rank not in self._others:
                self._others[rank] = RankColumns(self.directory.record, rank, _COLUMNS_OF_OTHER_RANKS)
            if not self.removed:
                self._others[rank].refresh()
            return self._others[rank]

    def wrote(self, rank: int) -> bool:
        """Whether a rank has written anything; of the first it is taken for granted."""
        return rank == 0 or rank in self._others or rank_folder(self.directory.record, rank).is_dir()

    @property
    def ranks(self) -> list[int]:
        """The ranks that have written anything."""
        return self.record.ranks

    @property
    def version(self) -> str:
        """Changes whenever rank 0 has written something, or the run has begun, ended or gone."""
        return f"{self._born}.{self.columns.version}{'r' if self.under_way else ''}{'x' if self.removed else ''}"

    def made(self, key: Any, version: Any, make: Callable[[], _Made]) -> _Made:
        """What `make` returns, made anew only when `version` is another than the last time."""
        with self.lock:
            known = self._made.get(key)
            if known is None or known[0] != version:
                known = (version, make())
                self._made[key] = known
            value: _Made = known[1]
            return value

    def history(self, rank: int = 0) -> History:
        """The step rows of a rank that led to the run's present weights."""
        columns = self.rank(rank)
        return self.made(("history", rank), columns.version, lambda: history_of(columns))

    def numbers(self, name: str, rank: int = 0) -> Numbers:
        """A column of a rank's step rows over its history."""
        return self.history(rank).of(self.rank(rank).numbers("step", name))

    @property
    def units(self) -> list[str]:
        """The axes that there are."""
        names = set(self.columns.names("step"))
        needed = {"tokens": "tokens_seen", "hours": "time", "flops": "tokens_seen"}
        known = [unit for unit in UNITS if needed.get(unit, "step") in names]
        return [unit for unit in known if unit != "flops" or self.parameters is not None]

    def axis(self, unit: str) -> Numbers | None:
        """Where each step of the history stands in `unit`, ascending; None where that is not known."""
        return self.made(("axis", unit), self.columns.version, lambda: self._axis(unit))

    def _axis(self, unit: str) -> Numbers | None:
        if unit == "step":
            return self.history().steps.astype(np.float64)
        if unit == "hours":
            values = self.numbers("time")
            known = values[np.isfinite(values)]
            values = (values - known[0]) / 3600 if known.size else values
        else:
            values = self.numbers("tokens_seen")
            if unit == "flops":
                values = values * (self._of_model(lambda *model: flops_per_token(*model).causal) or np.nan)
        finite = np.isfinite(values)
        if not finite.any():
            return None
        # A clock that was set back, or a row without its time, may not make the curve go backwards.
        return np.maximum.accumulate(np.where(finite, values, -np.inf)).clip(min=float(values[finite].min()))

    def places(self, steps: Integers, unit: str) -> Numbers | None:
        """Where steps stand in `unit`, between the recorded ones in proportion."""
        axis = self.axis(unit)
        if axis is None or unit == "step":
            return None if axis is None else steps.astype(np.float64)
        return np.interp(steps, self.history().steps, axis)

    def sparse(self, kind: str, key: str, rank: int = 0) -> dict[str, pl.DataFrame]:
        """Rows of a kind by the text in column `key` (module, source), without those that were given up."""
        columns = self.rank(rank)
        return self.made(("sparse", kind, key, rank), columns.version, lambda: _by_key(columns, kind, key))

    def rows_about_steps(self, kind: str, rank: int = 0) -> pl.DataFrame:
        """Rows of a kind that the run did not go back behind, by step, in the order written."""
        columns = self.rank(rank)
        return self.made(("rows", kind, rank), columns.version, lambda: _standing(columns, kind))

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe as plain values; an empty one where it cannot be read."""
        return self.made("recipe", _stamp(self.directory.recipe), lambda: _yaml_object(self.directory.recipe))

    @property
    def name(self) -> str:
        """The name that the recipe gives, or the folder's."""
        return str(self.recipe.get("name") or self.directory.path.resolve().name)

    def setting(self, *path: str) -> Any:
        """The recipe's value at `path`, None when it has none."""
        return value_at(self.recipe, *path)

    @property
    def corpus(self) -> dict[str, Any]:
        """The prepared corpus's manifest; an empty one where it cannot be read."""
        return self.made("corpus", _stamp(self.directory.corpus), lambda: json_object(self.directory.corpus))

    @property
    def parameters(self) -> float | None:
        """The number of parameters; None where recipe or corpus do not say."""
        return self._of_model(lambda *model: parameter_count(*model).total)

    def _of_model(self, figure: Callable[[Model, int, int], float]) -> float | None:
        tokenizer, length = self.corpus.get("tokenizer"), self.setting("training", "sequence_length")
        vocabulary = tokenizer.get("vocabulary_size") if isinstance(tokenizer, dict) else None
        if not isinstance(vocabulary, int) or not isinstance(length, int):
            return None
        try:
            return figure(Model(**self.setting("model")), vocabulary, length)
        except (ValidationError, TypeError):
            return None

    def events(self) -> list[Event]:
        """Everything that happened, by time; what the supervisor recorded is among it."""

        def make() -> list[Event]:
            try:
                alerts = [readable(one) for one in self.record.events(MONITOR) if one.get("event") == "alert"]
                return sorted([*course_of(self.record, self.under_way), *alerts], key=time_of)
            except (OSError, ValueError, pl.exceptions.PolarsError):
                return []

        others = [_stamp(rank_folder(self.directory.record, one) / LIVE_FILE) for one in (SUPERVISOR, MONITOR)]
        version = (self.columns.height("event"), self.under_way, *others)
        return self.made("events", version, make)

    @property
    def state(self) -> str:
        """How the run stands: finished, running, non_finite, terminated, interrupted, not_started, removed."""
        if self.removed:
            return "removed"
        events = self.columns.recent("event", 200)
        names = events["event"].to_list() if "event" in events.columns else []
        last = next((name for name in reversed(names) if name in _ENDINGS), None)
        if last == "finished" and not self.under_way:
            return "finished"
        if self.under_way:
            return "running"
        if last in ("non_finite", "terminated"):
            return str(last)
        return "interrupted" if self.columns.height("step") else "not_started"


def _by_key(columns: RankColumns, kind: str, key: str) -> dict[str, pl.DataFrame]:
    table = _standing(columns, kind)
    if key not in table.columns or not table.height:
        return {}
    parts = table.drop_nulls(key).partition_by(key, maintain_order=True, as_dict=True)
    return {str(name): part.unique("step", keep="last", maintain_order=True) for (name,), part in parts.items()}


def _standing(columns: RankColumns, kind: str) -> pl.DataFrame:
    table = columns.table(kind)
    if not {"step", SEQUENCE} <= set(table.columns):
        return pl.DataFrame()
    steps, sequences = columns.numbers("step", "step"), columns.numbers("step", SEQUENCE)
    known = np.isfinite(steps)
    kept = not_given_up(
        table[SEQUENCE].to_numpy(),
        table["step"].fill_null(0).to_numpy(),
        sequences[known].astype(np.int64),
        steps[known].astype(np.int64),
    )
    return table.filter(pl.Series(kept)).drop_nulls("step").sort("step", maintain_order=True)


def time_of(event: Event) -> float:
    """When it happened, in unix seconds; 0 where that is not known."""
    time = event.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _stamp(path: Path) -> Any:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where there is none, or it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _yaml_object(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
