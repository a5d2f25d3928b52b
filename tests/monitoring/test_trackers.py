"""Figures reach the real libraries, without a network."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import MissingExtra
from stoker.monitoring import trackers
from stoker.monitoring.trackers import Point, Tracking, point_of, require_installed
from stoker.monitoring.watching import watch
from stoker.recipe import Exporters
from stoker.recipe.loading import load_recipe
from stoker.run_directory import RunDirectory
from tests.monitoring.watched_run import make_run, rows, steps, wait_for
from tests.record.step_rows import step_row

pytestmark = pytest.mark.slow


def exported(folder: Path, section: str, last: int = 20) -> RunDirectory:
    run = make_run(folder, f"exporters: {{{section}}}\n")
    steps(run, 1, last, loss=lambda s: 5.0 / s)
    rows(run, "evaluation", {"step": 20, "source": "中文", "loss": 2.5})
    watch(run, pytest.fail)
    return run


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = exported(tmp_path, "tensorboard: {enabled: true, every: 2}")
    found = EventAccumulator(str(run.path / "tensorboard"))
    found.Reload()
    assert [(one.step, one.value) for one in found.Scalars("loss")] == [
        (s, pytest.approx(5.0 / s)) for s in range(2, 21, 2)
    ]
    assert found.Scalars("evaluation/中文/loss")[0].value == 2.5
    assert found.Scalars("loss_by_source/中文")[0].step == 2


def test_an_export_goes_on_from_where_it_stopped(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = exported(tmp_path, "tensorboard: {enabled: true}")
    steps(run, 21, 30)
    watch(run, pytest.fail)
    watch(run, pytest.fail)
    found = EventAccumulator(str(run.path / "tensorboard"))
    found.Reload()
    assert [one.step for one in found.Scalars("loss")] == list(range(1, 31))


def test_mlflow_answers_with_what_was_written(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    run = exported(tmp_path, "mlflow: {enabled: true}")
    steps(run, 21, 30)
    watch(run, pytest.fail)
    client = MlflowClient(f"sqlite:///{run.path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("stoker")
    [found] = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == "small"
    assert found.info.status == "FINISHED"
    history = client.get_metric_history(found.info.run_id, "loss")
    assert sorted(one.step for one in history) == list(range(1, 31))
    assert client.get_metric_history(found.info.run_id, "evaluation/中文/loss")[0].value == 2.5


def test_wandb_offline_leaves_a_run_to_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    run = exported(tmp_path, "wandb: {enabled: true, mode: offline}")
    [found] = (run.path / "wandb").glob("offline-run-*/*.wandb")
    content = found.read_bytes()
    assert b"gradient_norm" in content
    assert b"loss_by_source/" in content
    assert b"ffn_hidden_size" in content


@pytest.mark.parametrize(
    ("section", "module", "extra"),
    [
        ("prometheus", "prometheus_client", "prometheus"),
        ("tensorboard", "tensorboard", "tensorboard"),
        ("wandb", "wandb", "wandb"),
        ("mlflow", "sqlalchemy", "mlflow"),
    ],
)
def test_what_is_not_installed_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, section: str, module: str, extra: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else real(name))
    require_installed(Exporters())
    with pytest.raises(MissingExtra) as caught:
        require_installed(Exporters.model_validate({section: {"enabled": True}}))
    assert str(caught.value) == f"exporters.{section} needs an optional part: pip install 'stoker[{extra}]'"


class Hanging:
    """A tracker that never answers, after it has been opened."""

    let_go = threading.Event()

    def __init__(self, *_: Any) -> None:
        pass

    def write(self, points: Sequence[Point]) -> None:
        self.let_go.wait(60)

    def close(self) -> None:
        pass


class Failing(Hanging):
    def write(self, points: Sequence[Point]) -> None:
        raise RuntimeError("the server is gone")


@pytest.mark.parametrize("kind", [Hanging, Failing])
def test_a_tracker_that_hangs_or_fails_is_told_of_once_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Hanging]
) -> None:
    monkeypatch.setattr(trackers, "_WandB", kind)
    run = make_run(tmp_path, "exporters: {wandb: {enabled: true}, tensorboard: {enabled: true, every: 100}}\n")
    lines: list[str] = []
    tracking = Tracking(run, load_recipe(run.recipe).recipe, lines.append)
    for step in range(1, 400):
        point = point_of("step", step_row(step))
        assert point is not None
        tracking.put([point])
    wait_for(lambda: lines)
    assert lines[0].startswith("the exporter wandb ")
    tracking.close(time.monotonic() + 0.5)
    Hanging.let_go.set()
    assert len([line for line in lines if "works again" not in line]) == 1
    assert list((run.path / "tensorboard").iterdir())


def test_points_are_named_by_what_they_are_of() -> None:
    point = point_of("module", {"step": 3, "time": 1.0, "module": "blocks.0", "weight_rms": 0.5, "attempt": 1})
    assert point == Point(3, 1.0, {"module/blocks.0/weight_rms": 0.5})
    assert point_of("step", {"step": None, "loss": 1.0}) is None
    assert point_of("step", {"step": 3, "loss": None}) is None
