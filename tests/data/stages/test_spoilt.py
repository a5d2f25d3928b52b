"""A preparation that goes on over damaged work says so, and never makes a corpus of it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from stoker.data import prepare as preparing
from stoker.data.prepare import prepare
from stoker.errors import StokerError
from stoker.progress import Silent
from tests.data.small_corpus import sentence, small_recipe


def test_work_that_was_cut_short_is_named_and_no_corpus_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(1)
    (tmp_path / "a.txt").write_text("\n".join(sentence(draw) for _ in range(60)))
    loaded = small_recipe(tmp_path, sources=[{"name": "a", "paths": ["a.txt"], "documents": "line"}])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "make_tokenizer", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(loaded, Silent())
    monkeypatch.undo()
    (work,) = loaded.prepared_folder.glob(".work-*")
    shutil.copytree(work, tmp_path / "kept")
    for name in ("selection", "read/000000.text", "read/000000.parquet", "read/000000.signatures"):
        shutil.rmtree(work)
        shutil.copytree(tmp_path / "kept", work)
        content = (work / name).read_bytes()
        (work / name).write_bytes(content[: len(content) // 2])
        if name.endswith("signatures"):
            (work / "selection").unlink()  # they are read for it
        with pytest.raises(StokerError, match=f"{work / name}: .* delete {work}, then the same command") as caught:
            prepare(loaded, Silent())
        assert caught.value.exit_code == 1
        assert not (loaded.prepared_folder / work.name.removeprefix(".work-")).exists()
    shutil.rmtree(work)
    assert prepare(loaded, Silent()).folder.name == work.name.removeprefix(".work-")
