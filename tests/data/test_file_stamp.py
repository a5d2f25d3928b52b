"""A file that is another is noticed, whatever its size and its times say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.data import fingerprint
from stoker.data.file_stamp import NO_FILE, last_moved, stamp_of
from stoker.data.prepare import prepare
from stoker.data.quality.model_file import file_state
from stoker.progress import Silent
from tests.data.small_corpus import small_recipe, write_text_files

_LONG_AGO = (1_700_000_000, 1_700_000_000)


def in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def moved_there(path: Path, content: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(content)
    os.utime(other, _LONG_AGO)
    other.replace(path)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes are remembered at once, as those of files that have lain there for a while."""
    monkeypatch.setattr(fingerprint, "_SETTLED_SECONDS", -1e9)


@pytest.mark.parametrize("change", [in_place, moved_there])
@pytest.mark.usefixtures("settled")
def test_other_text_of_the_same_size_and_time_makes_another_corpus(tmp_path: Path, change: object) -> None:
    write_text_files(tmp_path / "text")
    path = tmp_path / "text" / "english.jsonl"
    os.utime(path, _LONG_AGO)
    loaded = small_recipe(tmp_path)
    first = prepare(loaded, Silent())
    before = path.read_bytes()
    changed = before.replace(b"the", b"any", 1)
    assert callable(change)
    change(path, changed)
    os.utime(path, _LONG_AGO)
    assert path.stat().st_size == len(before)
    assert path.stat().st_mtime == _LONG_AGO[0]
    assert prepare(loaded, Silent()).fingerprint != first.fingerprint


@pytest.mark.usefixtures("settled")
def test_what_lies_as_it_was_is_not_hashed_again_and_rights_change_no_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text_files(tmp_path / "text")
    loaded = small_recipe(tmp_path)
    hashed: list[str] = []
    digest = fingerprint._digest
    monkeypatch.setattr(fingerprint, "_digest", lambda path: (hashed.append(str(path)), digest(path))[1])
    first = fingerprint.take_inputs(loaded, 1, Silent())
    assert len(hashed) == len(first.paths)
    assert fingerprint.take_inputs(loaded, 1, Silent()).fingerprint == first.fingerprint
    assert len(hashed) == len(first.paths)
    path = tmp_path / "text" / "english.jsonl"
    path.chmod(0o600)
    assert fingerprint.changed_files(first) == []
    assert hashed[len(first.paths) :] == [str(path)]
    again = fingerprint.take_inputs(loaded, 1, Silent())
    assert again.fingerprint == first.fingerprint


def test_a_file_written_over_while_it_is_read_is_named(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    path = tmp_path / "text" / "english.jsonl"
    os.utime(path, _LONG_AGO)
    inputs = fingerprint.take_inputs(small_recipe(tmp_path), 1, Silent())
    path.write_bytes(path.read_bytes().replace(b"the", b"any", 1))
    os.utime(path, _LONG_AGO)
    assert fingerprint.changed_files(inputs) == [str(path)]


def test_a_model_in_the_place_of_another_is_another(tmp_path: Path) -> None:
    path = tmp_path / "model"
    assert file_state(path) == NO_FILE
    path.write_bytes(b"one")
    os.utime(path, _LONG_AGO)
    before = file_state(path)
    moved_there(path, b"two")
    assert file_state(path) != before
    assert last_moved(stamp_of(path.stat())) > _LONG_AGO[0] * 10**9
