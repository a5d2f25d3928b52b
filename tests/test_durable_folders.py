"""A folder appears whole or not at all, whoever writes it and however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.durable_files import PARTIAL_MARK, durable_folder
from stoker.errors import BadInput, StokerError

FILL_AND_DIE = """
import os, signal, sys
from pathlib import Path
from stoker.durable_files import durable_folder
with durable_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(final: Path) -> None:
    with durable_folder(final) as folder:
        assert not list(folder.iterdir())
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("whole")


def assert_whole(final: Path) -> None:
    assert (final / "inner" / "file").read_text() == "whole"
    assert [path.name for path in final.iterdir()] == ["inner"]
    assert [path.name for path in final.parent.iterdir()] == [final.name]


def test_it_appears_when_all_is_in_it(tmp_path: Path) -> None:
    final = tmp_path / "new" / "out"
    with durable_folder(final) as folder:
        (folder / "file").write_text("x")
        assert not final.exists()
    assert (final / "file").read_text() == "x"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    fill(tmp_path / "out")
    assert_whole(tmp_path / "out")


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with durable_folder(tmp_path / "out") as folder:
            (folder / "file").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not list(tmp_path.iterdir())


def test_what_a_kill_left_is_in_nobodys_way(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", FILL_AND_DIE, str(tmp_path / "out")], check=False, timeout=60)
    assert died.returncode == -9
    assert not (tmp_path / "out").exists()
    assert [PARTIAL_MARK in path.name for path in tmp_path.iterdir()] == [True]
    fill(tmp_path / "out")
    assert_whole(tmp_path / "out")


def test_of_two_writers_the_second_is_refused_and_the_first_undisturbed(tmp_path: Path) -> None:
    final = tmp_path / "out"
    with durable_folder(final) as folder:
        (folder / "inner").mkdir()
        with pytest.raises(BadInput, match="just being written by another process"):
            fill(final)
        (folder / "inner" / "file").write_text("whole")
    assert_whole(final)
    with pytest.raises(BadInput, match="exists already and is not an empty folder"):
        fill(final)
    assert_whole(final)


def test_what_is_there_already_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        with pytest.raises(BadInput, match="exists already"):
            fill(tmp_path / name)
    with pytest.raises(BadInput, match="names no new folder"):
        fill(Path("/"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_a_place_that_holds_no_folders_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file" / "out", Path("/proc") / "out"):
        with pytest.raises(StokerError, match=f"could not write {place.parent}: "):
            fill(place)
    assert os.listdir(tmp_path) == ["file"]
