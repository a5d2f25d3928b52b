"""TensorBoard, Weights & Biases and MLflow: each opened and written to on a thread of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stoker.errors import MissingExtra
from stoker.monitoring.sending import Outbox
from stoker.recipe import Recipe
from stoker.recipe.monitoring import Exporters, MLflow, TensorBoard, WandB
from stoker.run_directory import RunDirectory

_MOST_WAITING = 256
_MLFLOW_AT_ONCE = 500
_SKIPPED = ("attempt", "step", "time", "first_sample", "last_sample", "began", "ranks")


@dataclass(frozen=True)
class Point:
    """Figures of one step."""

    step: int
    time: float
    figures: Mapping[str, float]


class Tracker(Protocol):
    """Where points go. Everything may raise, and may take long."""

    def write(self, points: Sequence[Point]) -> None:
        """Take points in."""

    def close(self) -> None:
        """Write what is held back."""


def require_installed(exporters: Exporters) -> None:
    """Raise `MissingExtra` for the first exporter that is asked for and whose library is not there."""
    wanted = (
        (exporters.prometheus.enabled, "exporters.prometheus", "prometheus", ("prometheus_client",)),
        (exporters.tensorboard.enabled, "exporters.tensorboard", "tensorboard", ("tensorboard",)),
        (exporters.wandb.enabled, "exporters.wandb", "wandb", ("wandb",)),
        (exporters.mlflow.enabled, "exporters.mlflow", "mlflow", ("mlflow", "sqlalchemy")),
    )
    for enabled, what, extra, modules in wanted:
        if enabled and any(importlib.util.find_spec(module) is None for module in modules):
            raise MissingExtra(what, extra)


def point_of(kind: str, row: Mapping[str, Any]) -> Point | None:
    """The figures of a row under the names that trackers show; None where there are none."""
    step = row.get("step")
    if not isinstance(step, int):
        return None
    prefix = {"evaluation": "evaluation/{source}/", "module": "module/{module}/", "routing": "routing/{module}/"}
    before = prefix.get(kind, "").format_map({"source": row.get("source"), "module": row.get("module")})
    figures = {before + name: value for name, value in _flat(row)}
    return Point(step, float(row.get("time") or 0), figures) if figures else None


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for field, value in row.items():
        if field in _SKIPPED:
            continue
        if isinstance(value, Mapping):
            for name, inner in value.items():
                if isinstance(inner, int | float):
                    yield f"{field}/{name}", float(inner)
        elif isinstance(value, int | float):
            yield field, float(value)


class Tracking:
    """All trackers of a run, each with its own queue: one that hangs holds up neither the others nor the run."""

    def __init__(self, run: RunDirectory, recipe: Recipe, say: Callable[[str], None]) -> None:
        exporters = recipe.exporters
        makers: list[tuple[str, int, Callable[[], Tracker]]] = []
        if exporters.tensorboard.enabled:
            board = exporters.tensorboard
            makers.append(("tensorboard", board.every, lambda: _TensorBoard(run, board)))
        if exporters.wandb.enabled:
            makers.append(("wandb", exporters.wandb.every, lambda: _WandB(run, recipe, exporters.wandb)))
        if exporters.mlflow.enabled:
            makers.append(("mlflow", exporters.mlflow.every, lambda: _MLflow(run, recipe, exporters.mlflow)))
        self._lines = [_Line(name, every, make, say) for name, every, make in makers]

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def idle(self) -> bool:
        """Whether all that was put has been written, or given up."""
        return all(line.outbox.idle for line in self._lines)

    def put(self, points: Sequence[Point]) -> None:
        """Have `points` written."""
        for line in self._lines:
            due = [point for point in points if point.step % line.every == 0]
            if due:
                line.outbox.put(due)

    def close(self, until: float) -> None:
        """Write what waits, at most until the monotonic clock says `until`."""
        for line in self._lines:
            line.outbox.put(None)
        for line in self._lines:
            line.outbox.close(until)


class _Line:
    """One tracker behind its queue."""

    def __init__(self, name: str, every: int, make: Callable[[], Tracker], say: Callable[[str], None]) -> None:
        self.every = every
        self._make = make
        self._tracker: Tracker | None = None
        self.outbox: Outbox[Sequence[Point] | None] = Outbox(
            f"the exporter {name}", self._deliver, most=_MOST_WAITING, tries=3, say=say
        )

    def _deliver(self, points: Sequence[Point] | None) -> None:
        if points is None:
            if self._tracker is not None:
                self._tracker.close()
            return
        if self._tracker is None:
            self._tracker = self._make()
        self._tracker.write(points)


class _TensorBoard:
    def __init__(self, run: RunDirectory, options: TensorBoard) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = run.path / (options.folder or "tensorboard")
        self._writer = EventFileWriter(str(folder), flush_secs=10)

    def write(self, points: Sequence[Point]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for point in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.figures.items()]
            self._writer.add_event(Event(wall_time=point.time, step=point.step, summary=Summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, run: RunDirectory, recipe: Recipe, options: WandB) -> None:
        import wandb

        self._run = wandb.init(
            project=options.project,
            entity=options.entity,
            mode=options.mode,
            dir=str(run.path),
            name=recipe.name,
            id=_identity(run),
            resume="allow",
            config=recipe.model_dump(mode="json", exclude={"alerts", "exporters"}),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, save_code=False),
        )
        # A step of their own: W&B's goes only up, and a run may go back.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log({"step": point.step, **point.figures})

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    def __init__(self, run: RunDirectory, recipe: Recipe, options: MLflow) -> None:
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):  # they tell of every table they make
            logging.getLogger(name).setLevel(logging.ERROR)
        self._client = MlflowClient(options.tracking_uri or f"sqlite:///{(run.path / 'mlflow.db').absolute()}")
        found = self._client.get_experiment_by_name(options.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(options.experiment)
        identity = _identity(run)
        known = self._client.search_runs([experiment], f"tags.stoker_run = '{identity}'", max_results=1)
        if known:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            tags = {"stoker_run": identity}
            self._id = self._client.create_run(experiment, tags=tags, run_name=recipe.name).info.run_id

    def write(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(
                _for_mlflow(name), value if math.isfinite(value) else math.nan, int(point.time * 1000), point.step
            )
            for point in points
            for name, value in point.figures.items()
        ]
        for begin in range(0, len(metrics), _MLFLOW_AT_ONCE):
            self._client.log_batch(self._id, metrics=metrics[begin : begin + _MLFLOW_AT_ONCE])

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _for_mlflow(name: str) -> str:
    """MLflow allows words, `_`, `-`, `.`, `:`, `/` and spaces."""
    return "".join(letter if letter.isalnum() or letter in "_-.:/ " else "_" for letter in name)


def _identity(run: RunDirectory) -> str:
    """The same for one run each time, another for each run."""
    text = run.identity.read_text() if run.identity.is_file() else str(run.path.absolute())
    return hashlib.sha256(text.encode()).hexdigest()[:16]
