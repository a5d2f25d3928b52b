"""Tables are made once, are never those of another state, and never half of themselves."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from stoker.data import stored_tables as module
from stoker.data.stored_tables import Tables, stored_tables


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of code; tables are kept beside it."""
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    path = tmp_path / "code.py"
    path.write_text("version = 1\n")
    return path


class Maker:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Tables:
        self.made += 1
        return {"numbers": np.arange(self.made, self.made + 3), "flags": np.asarray([True, False])}


def test_tables_are_made_once(source: Path) -> None:
    make = Maker()
    first, second = (stored_tables("some", "a", source, make) for _ in range(2))
    assert make.made == 1
    for name in ("numbers", "flags"):
        assert np.array_equal(first[name], second[name])
        assert first[name].dtype == second[name].dtype


def test_tables_of_other_origin_or_other_code_are_made_anew(source: Path) -> None:
    make = Maker()
    stored_tables("some", "a", source, make)
    stored_tables("some", "b", source, make)
    assert make.made == 2
    source.write_text("version = 2\n")
    assert stored_tables("some", "a", source, make)["numbers"].tolist() == [3, 4, 5]


@pytest.mark.parametrize("kept", [0, 1, 0.5])
def test_damaged_tables_are_made_anew(source: Path, kept: float) -> None:
    make = Maker()
    stored_tables("some", "a", source, make)
    (path,) = source.parent.glob("cache/some-*.npz")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)] if kept != 1 else b"\0" + content[1:-40] + bytes(40))
    assert stored_tables("some", "a", source, make)["numbers"].tolist() == [2, 3, 4]
    stored_tables("some", "a", source, make)
    assert make.made == 2


def test_a_place_that_cannot_be_written_stops_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cache_folder", lambda: Path("/proc/nowhere"))
    make = Maker()
    assert stored_tables("some", "a", source, make)["numbers"].tolist() == [1, 2, 3]
    assert stored_tables("some", "a", source, make)["numbers"].tolist() == [2, 3, 4]


def test_of_a_disk_that_is_full_nothing_is_kept(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(stream: BinaryIO, **_: object) -> None:
        stream.write(b"PK")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    assert stored_tables("some", "a", source, Maker())["numbers"].tolist() == [1, 2, 3]
    assert not list(source.parent.glob("cache/*"))


def test_nothing_is_kept_of_tables_that_could_not_be_made(source: Path) -> None:
    def fail() -> Tables:
        raise LookupError("no such table")

    with pytest.raises(LookupError):
        stored_tables("some", "a", source, fail)
    assert not list(source.parent.glob("cache/*"))
