"""Two processes never own one run."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from stoker.errors import BadInput, StokerError
from stoker.run_directory import RunDirectory


def _holder(folder: Path, purpose: str) -> tuple[int, int]:
    """A child that holds the folder until it is killed: its process id, and the end of a pipe it wrote `1` to."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - the child
        with RunDirectory(folder).held(purpose):
            os.write(writing, b"1")
            signal.pause()
        os._exit(0)
    os.close(writing)
    return child, reading


def test_a_held_folder_is_refused_with_host_process_and_purpose(tmp_path: Path) -> None:
    child, reading = _holder(tmp_path, "train")
    try:
        assert os.read(reading, 1) == b"1"
        with pytest.raises(BadInput) as caught, RunDirectory(tmp_path).held("train"):
            pass
        message = str(caught.value)
        assert "is in use" in message
        assert str(child) in message
        assert socket.gethostname() in message
        assert "train" in message
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    child, reading = _holder(tmp_path, "train")
    assert os.read(reading, 1) == b"1"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    with RunDirectory(tmp_path).held("train again"):
        held = json.loads((tmp_path / "lock").read_text())
    assert held["pid"] == os.getpid()
    assert held["purpose"] == "train again"
    assert held["since"].endswith("+00:00")


def test_the_folder_can_be_held_again_after_an_error(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "new" / "run")
    with pytest.raises(RuntimeError), run.held("train"):
        raise RuntimeError
    with run.held("train"):
        assert run.lock_file.is_file()


def test_a_shorter_holder_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.held("a rather long purpose " * 20):
        pass
    with run.held("short"):
        assert json.loads(run.lock_file.read_text())["purpose"] == "short"


def test_a_folder_without_a_run_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is not a run: it has no recipe\.yaml"):
        RunDirectory(tmp_path).require_run()
    (tmp_path / "recipe.yaml").write_text("name: x")
    with pytest.raises(BadInput, match=r"it has a recipe\.yaml and nothing that a run writes"):
        RunDirectory(tmp_path).require_run()
    (tmp_path / "record").mkdir()
    RunDirectory(tmp_path).require_run()


def test_a_file_in_the_place_of_the_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with (
        pytest.raises(StokerError, match="a file stands where a folder is expected"),
        RunDirectory(tmp_path / "run").held("train"),
    ):
        pass


def test_everything_lies_inside_the_folder(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for path in (run.recipe, run.environment, run.plan, run.corpus, run.record, run.checkpoints, run.report):
        assert path.parent == tmp_path
