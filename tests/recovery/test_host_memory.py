"""Whose the copies in a node's memory are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from stoker.checkpoint.snapshots import Note, Slot, slot_file
from stoker.checkpoint.tensor_file import lay_out
from stoker.errors import BadInput
from stoker.recovery import host_memory
from stoker.recovery.host_memory import copies_of
from stoker.run_directory import RunDirectory


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the node's memory."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(host_memory, "memory_root", lambda: folder)
    return folder


def _new_run(path: Path) -> RunDirectory:
    path.mkdir()
    return RunDirectory(path)


def _left_by(run: RunDirectory) -> Path:
    """The copies of a command that ended before its seventh step was saved."""
    with copies_of(run, run.checkpoints, "node-0", wanted=True) as folder:
        assert folder is not None
        _write_copy(folder / "rank-00000", 7)
    return folder


def _write_copy(folder: Path, step: int) -> None:
    slot = Slot(lay_out([]), slot_file(folder, 0), torch.device("cpu"))
    slot.prepare()
    note = Note(
        step=step,
        file=slot.entry({}),
        session="one",
        rank=0,
        ranks=1,
        optimizer="adamw",
        progress={},
        described={},
    )
    slot.complete(note)


def test_a_copied_folder_does_not_take_the_copies_of_the_run_it_was_copied_from(
    tmp_path: Path, memory: Path
) -> None:
    first = _new_run(tmp_path / "first")
    copies = _left_by(first)
    shutil.copytree(first.path, tmp_path / "second")
    with copies_of(RunDirectory(tmp_path / "second"), tmp_path / "none", "node-0", wanted=True) as others:
        assert others != copies
    with copies_of(first, first.checkpoints, "node-0", wanted=True) as again:
        assert again == copies
        assert (copies / "rank-00000").is_dir()


def test_another_path_to_the_same_folder_finds_its_copies(tmp_path: Path, memory: Path) -> None:
    copies = _left_by(_new_run(tmp_path / "first"))
    (tmp_path / "link").symlink_to(tmp_path / "first")
    with copies_of(RunDirectory(tmp_path / "link"), tmp_path / "none", "node-0", wanted=True) as again:
        assert again == copies
        assert (copies / "rank-00000").is_dir()


def test_a_folder_that_was_moved_keeps_its_copies(tmp_path: Path, memory: Path) -> None:
    first = _new_run(tmp_path / "first")
    copies = _left_by(first)
    first.path.rename(tmp_path / "moved")
    with copies_of(RunDirectory(tmp_path / "moved"), tmp_path / "none", "node-0", wanted=True) as again:
        assert again == copies
        assert (copies / "rank-00000").is_dir()


def test_nothing_stays_of_a_run_that_is_removed_or_wants_no_more_copies(tmp_path: Path, memory: Path) -> None:
    removed, unwanting = _new_run(tmp_path / "removed"), _new_run(tmp_path / "unwanting")
    _left_by(removed)
    _left_by(unwanting)
    shutil.rmtree(removed.path)
    with copies_of(unwanting, unwanting.checkpoints, "node-0", wanted=False) as none:
        assert none is None
    assert not list(memory.iterdir())


def test_copies_of_a_container_that_shares_the_memory_are_no_strays_until_they_are_forgotten(
    tmp_path: Path, memory: Path
) -> None:
    unseen, own = _new_run(tmp_path / "in a container"), _new_run(tmp_path / "own")
    copies = _left_by(unseen)
    (copies.parent / "namespace").write_text("mnt:[1]", encoding="utf-8")
    shutil.rmtree(unseen.path)  # as if it were mounted there alone
    with copies_of(own, own.checkpoints, "node-0", wanted=False):
        assert copies.is_dir()
    for path in copies.parent.rglob("*"):
        os.utime(path, (0, 0))
    with copies_of(own, own.checkpoints, "node-0", wanted=False):
        assert not copies.exists()


@pytest.mark.parametrize(("saved", "kept"), [(None, True), (4, True), (7, False), (8, False)])
def test_a_command_that_fails_removes_copies_only_of_what_is_saved(
    tmp_path: Path, memory: Path, saved: int | None, kept: bool
) -> None:
    run = _new_run(tmp_path / "run")
    if saved is not None:
        (run.checkpoints / f"step-{saved:08d}").mkdir(parents=True)
    with pytest.raises(BadInput):
        _refused_after_step_7(run)
    assert any(memory.iterdir()) == kept
    with copies_of(run, run.checkpoints, "node-0", wanted=True) as again:
        assert again is not None
        assert (again / "rank-00000").exists() == kept


def _refused_after_step_7(run: RunDirectory) -> None:
    with copies_of(run, run.checkpoints, "node-0", wanted=True) as copies:
        assert copies is not None
        _write_copy(copies / "rank-00000", 7)
        raise BadInput("an option that cannot be")
