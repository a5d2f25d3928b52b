"""What is not the text itself changes no byte: a full disk, the clock, the locale. Ids that recur lose nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.prepare import prepare
from stoker.durable_files import PARTIAL_MARK
from stoker.errors import BadInput, StokerError
from stoker.progress import Silent
from tests.data.small_corpus import folder_bytes, small_recipe, write_text_files

# Moments at which a small preparation asks the disk to keep something, in every stage: there are 105. The first two
# are of remembered hashes, which it can do without.
_MOMENTS = (3, 9, 16, 27, 38, 50, 62, 74, 86, 98, 105)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    write_text_files(folder / "text")
    return folder_bytes(prepare(small_recipe(folder), Silent()).folder)


@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_disk_that_is_full_at_any_moment_costs_no_byte(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    write_text_files(tmp_path / "text")
    loaded = small_recipe(tmp_path)
    kept, calls = os.fsync, [0]

    def full(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == moment:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        kept(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StokerError, match="the disk is full; free some space") as told:
            prepare(loaded, Silent())
    assert "\n" not in str(told.value)
    left = [path for path in loaded.prepared_folder.rglob("*") if PARTIAL_MARK in path.name]
    assert not left
    assert folder_bytes(prepare(loaded, Silent()).folder) == whole


@pytest.mark.parametrize(
    "changed",
    [{"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR"}],
)
def test_clock_and_locale_change_no_byte(tmp_path: Path, whole: dict[str, bytes], changed: dict[str, str]) -> None:
    write_text_files(tmp_path / "text")
    for path in (tmp_path / "text").rglob("*.*"):
        os.utime(path, (time.time() + 1e7, time.time() + 1e7))
    loaded = small_recipe(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "prepare", str(loaded.path), "--json"],
        env={**os.environ, **changed},
        capture_output=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (path for path in loaded.prepared_folder.iterdir() if not path.name.startswith("."))
    assert folder_bytes(folder) == whole


def asked(*words: object) -> Any:
    result = CliRunner().invoke(cli.application, ["data", *map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_document_of_an_id_that_recurs_is_found_and_counted(tmp_path: Path) -> None:
    """Twice in one file, again in another source, and again in a later corpus, each with a text of its own."""

    def lines(*texts: str) -> str:
        told = [f"{text} is said here, and only here. " * 8 for text in texts]
        return "".join(json.dumps({"id": "same", "text": text}) + "\n" for text in told)

    (tmp_path / "a.jsonl").write_text(lines("The first thing", "Something else"))
    (tmp_path / "b.jsonl").write_text(lines("What another source has"))
    sources = [{"name": name, "paths": [f"{name}.jsonl"], "id_field": "id"} for name in ("a", "b")]
    off = ("data.cleaning.filters=false", "data.held_out=0", "training.sequence_length=8")
    loaded = small_recipe(tmp_path, *off, sources=sources)
    earlier = prepare(loaded, Silent())
    rows = asked("why", earlier.folder, "same")
    assert [(row["source"], row["position"]) for row in rows] == [("a", "line 1"), ("a", "line 2"), ("b", "line 1")]
    assert len({row["content"] for row in rows} if "content" in rows[0] else {row["sha256"] for row in rows}) == 3
    kept = {e["source"]: e["documents"] for e in asked("funnel", earlier.folder) if e["stage"] == "kept"}
    assert kept == {"a": 2, "b": 1}

    (tmp_path / "b.jsonl").write_text(lines("What another source has", "A later line"))
    later = prepare(loaded, Silent())
    assert later.folder != earlier.folder
    assert len(asked("why", later.folder, "same")) == 4
    assert len(asked("why", earlier.folder, "same")) == 3


@pytest.mark.parametrize("field", ["prepared", "corpus", "prepared_cache"])
@pytest.mark.parametrize(
    ("written", "told"),
    [("", "the path is empty"), ("zip://a::s3://bucket/b", "is a chain of URLs")],
)
def test_a_place_that_holds_no_prepared_text_is_refused(
    tmp_path: Path, field: str, written: str, told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        small_recipe(tmp_path, f"data.{field}='{written}'")


def test_a_cache_is_a_folder_and_belongs_to_a_url(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing is fetched; leave it out"):
        small_recipe(tmp_path, "data.prepared_cache=cache")
    with pytest.raises(BadInput, match="is a URL, and what is fetched is kept on a disk"):
        small_recipe(tmp_path, "data.prepared=s3://bucket/a", "data.prepared_cache=s3://bucket/b")
