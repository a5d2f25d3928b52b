"""What the training loop makes of saves: it goes on beside them, outlives their failures, ends with none open."""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.checkpoint import latest, place, read_weights, snapshots, writing
from stoker.checkpoint.manifest import read_manifest
from stoker.data.corpus import Corpus
from stoker.errors import NonFinite, StokerError
from stoker.parallel import single_process_world
from stoker.recipe import Recipe
from stoker.record import Record
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from tests.checkpoint.tiny_training import assert_same
from tests.training.test_trainer import _recipe, corpus

__all__ = ["corpus"]
pytestmark = pytest.mark.slow


def _trainer(recipe: Recipe, corpus: Corpus, run: Path, memory: Path | None = None, attempt: int = 1) -> Trainer:
    job = replace(Job(recipe, run, corpus.folder, attempt), snapshots=memory)
    return build_trainer(job, single_process_world(torch.device("cpu")), StopRequest(), lambda message: None)


def _fit(recipe: Recipe, corpus: Corpus, run: Path) -> None:
    trainer = _trainer(recipe, corpus, run)
    try:
        trainer.fit()
    finally:
        trainer.close()


def _refuse(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full whenever `step` is saved."""
    plain = writing.write_file

    def write(file: Any, *args: Any) -> None:
        with writing.explained_errors(file):
            if f"step-{step:08d}" in str(file):
                raise OSError(errno.ENOSPC, "No space left on device")
        plain(file, *args)

    monkeypatch.setattr(writing, "write_file", write)


def _events(run: Path) -> list[tuple[str, int]]:
    found = Record(run / "record").events()
    return [(event["event"], event["step"]) for event in found if event["event"] in ("saved", "save_failed")]


def _saved(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_a_full_disk_is_recorded_and_the_run_goes_on(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _refuse(8, monkeypatch)
    _fit(_recipe(corpus), corpus, tmp_path)
    assert _events(tmp_path) == [("saved", 4), ("save_failed", 8), ("saved", 12)]
    assert _saved(tmp_path) == ["step-00000004", "step-00000012"]
    failed, saved = [event for event in Record(tmp_path / "record").events() if event["step"] in (8, 12)][:2]
    assert "the disk is full" in failed["detail"]["reason"]
    assert {"seconds", "stalled_seconds", "bytes"} <= saved["detail"].keys()
    assert "the checkpoint of step 8 failed" in caplog.text


def test_when_the_last_step_cannot_be_saved_the_run_ends_with_that(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse(12, monkeypatch)
    with pytest.raises(StokerError, match="the disk is full"):
        _fit(_recipe(corpus), corpus, tmp_path)
    assert _saved(tmp_path) == ["step-00000004", "step-00000008"]
    monkeypatch.undo()
    _fit(_recipe(corpus), corpus, tmp_path)
    assert "step-00000012" in _saved(tmp_path)


@pytest.mark.parametrize("release", [False, True])
def test_slow_copies_hold_what_was_after_their_step(
    release: bool, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights change in the middle of backward when gradients are released there."""
    recipe = _recipe(
        corpus,
        training__memory={"release_gradients": release},
        training__gradient_clip=None,
        training__steps=4,
        training__micro_batch_size=4,
        checkpoint__every=1,
        checkpoint__keep_last=9,
    )
    _fit(recipe, corpus, tmp_path / "quick")
    plain = snapshots.Slot.take
    monkeypatch.setattr(snapshots.Slot, "take", lambda *args: time.sleep(0.002) or plain(*args))
    _fit(recipe, corpus, tmp_path / "slow")
    names = _saved(tmp_path / "quick")
    assert names == _saved(tmp_path / "slow") == [f"step-{step:08d}" for step in range(1, 5)]
    for name in names:
        quick, slow = (tmp_path / run / "checkpoints" / name for run in ("quick", "slow"))
        assert_same(read_weights(slow), read_weights(quick))
        assert read_manifest(slow).tensors == read_manifest(quick).tensors
        assert read_manifest(slow).progress == read_manifest(quick).progress


def test_checkpoints_may_be_kept_in_an_object_store(corpus: Corpus, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/checkpoints"
    constant = {"training__schedule": {"name": "constant"}}
    recipe = _recipe(corpus, checkpoint__folder=url, **constant)
    _fit(_recipe(corpus, **constant), corpus, tmp_path / "straight")
    _fit(_recipe(corpus, checkpoint__folder=url, training__steps=8, **constant), corpus, tmp_path / "there")
    trainer = _trainer(recipe, corpus, tmp_path / "there", attempt=2)
    assert trainer.position.step == 8
    trainer.fit()
    trainer.close()
    assert not (tmp_path / "there" / "checkpoints").exists()
    newest = latest(place(url))
    assert newest is not None
    straight = read_manifest(tmp_path / "straight" / "checkpoints" / "step-00000012")
    assert read_manifest(newest).tensors == straight.tensors


class _Crash(Exception):
    pass


def test_a_run_goes_on_from_its_copy_in_memory(corpus: Corpus, tmp_path: Path) -> None:
    recipe = _recipe(corpus, checkpoint__every=4, recovery__copy_every=1)
    _fit(recipe, corpus, tmp_path / "straight")
    trainer = _trainer(recipe, corpus, tmp_path / "crashed", tmp_path / "memory")

    def crash(message: dict[str, Any]) -> None:
        if message["step"] == 11:
            raise _Crash

    trainer.report = crash
    with pytest.raises(_Crash):
        trainer.fit()
    trainer.close()
    trainer = _trainer(recipe, corpus, tmp_path / "crashed", tmp_path / "memory", attempt=2)
    assert trainer.position.step == 10
    trainer.fit()
    trainer.close()
    ends = [tmp_path / run / "checkpoints" / "step-00000012" for run in ("straight", "crashed")]
    assert read_manifest(ends[0]).tensors == read_manifest(ends[1]).tensors
    losses = [Record(tmp_path / run / "record").steps()["loss"].to_list() for run in ("straight", "crashed")]
    assert losses[0] == losses[1]


def test_a_copied_state_that_is_not_finite_stops_the_run_at_the_next_step(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(_recipe(corpus), corpus, tmp_path)
    moments = trainer.step.optimizer.state

    def poison(message: dict[str, Any]) -> None:
        if message["step"] == 8:  # recorded before it is saved; a second moment that is Inf moves no weight
            next(iter(moments.values()))["exp_avg_sq"].fill_(float("inf"))
        if message["step"] == 9:
            trainer.saver.finish()

    trainer.report = poison
    with pytest.raises(NonFinite, match="step 8 is not saved"):
        trainer.fit()
    trainer.close()
    assert _saved(tmp_path) == ["step-00000004"]
    assert Record(tmp_path / "record").steps()["step"].to_list()[-1] <= 10
