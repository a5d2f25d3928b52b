"""Tokenising: the same shards by any number of processes, and after a kill no finished shard is made again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.data.corpus import Corpus
from stoker.data.prepare import prepare
from stoker.data.stages import tokenise as module
from stoker.progress import Silent
from tests.data.small_corpus import folder_bytes, small_recipe, write_text_files


def prepared(folder: Path, workers: int) -> Corpus:
    folder.mkdir()
    write_text_files(folder / "text")
    return prepare(small_recipe(folder, workers=workers, shard_tokens=1024), Silent())


def test_shards_are_the_same_whatever_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 3000)
    one = prepared(tmp_path / "one", 1)
    monkeypatch.setattr(module, "_WORTH_A_WORKER", 1)
    two = prepared(tmp_path / "two", 2)
    assert folder_bytes(one.folder) == folder_bytes(two.folder)
    assert len(one.manifest["sources"][0]["splits"]["train"]["shards"]) > 2


def test_finished_shards_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepared(tmp_path / "whole", 1)
    (tmp_path / "broken").mkdir()
    write_text_files(tmp_path / "broken" / "text")
    loaded = small_recipe(tmp_path / "broken", workers=1, shard_tokens=1024)
    encoded: list[str] = []
    write = module.write_split
    finished = 0

    def dying(*arguments: Any) -> Any:
        *others, note = arguments

        def noted(shards: Iterable[Any]) -> None:
            nonlocal finished
            note(shards)
            finished += 1
            if finished == 3:
                raise KeyboardInterrupt

        return write(*others, noted)

    class Encoder(module.TextEncoder):
        def encode_documents(self, texts: Any) -> Any:
            encoded.extend(texts)
            return super().encode_documents(texts)

    monkeypatch.setattr(module, "TextEncoder", Encoder)
    monkeypatch.setattr(module, "_BATCH_BYTES", 3000)
    module.text_encoder.cache_clear()
    monkeypatch.setattr(module, "write_split", dying)
    with pytest.raises(KeyboardInterrupt):
        prepare(loaded, Silent())
    monkeypatch.setattr(module, "write_split", write)
    encoded.clear()
    module.text_encoder.cache_clear()
    resumed = prepare(loaded, Silent())
    module.text_encoder.cache_clear()
    assert folder_bytes(resumed.folder) == folder_bytes(whole.folder)
    shards = whole.manifest["sources"][0]["splits"]["train"]["shards"]
    total = sum(split["documents"] for source in whole.manifest["sources"] for split in source["splits"].values())
    assert len(encoded) == total - sum(shard["documents"] for shard in shards[:3])


def test_a_batch_holds_a_few_megabytes_and_every_document_once() -> None:
    class Sized:
        bytes = np.asarray([5, 0, 7, 1, 30, 2], np.int64)

        def encoded_texts(self, documents: Any) -> list[int]:
            return list(documents)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_BYTES", 10)
        batches: Any = module._batches(Sized(), np.asarray([0, 1, 2, 3, 4, 5]))  # type: ignore[arg-type]
    assert batches == [[0, 1, 2], [3, 4], [5]]
    assert module._batches(Sized(), np.empty(0, np.int64)) == []  # type: ignore[arg-type]
