"""Shards hold every token once, in order, in the stated format."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.shards import token_dtype, write_split
from stoker.errors import StokerError

LENGTHS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), max_size=30)


@settings(max_examples=40)
@given(LENGTHS, st.integers(1, 20), st.sampled_from(["uint16", "uint32"]))
def test_shards_hold_all_documents_in_order_and_none_spans_two(
    lengths: list[tuple[int, int]], shard_tokens: int, dtype: str
) -> None:
    start = 0
    documents = []
    for tokens, text_bytes in lengths:
        documents.append((np.arange(start, start + tokens, dtype=np.uint32), text_bytes))
        start += tokens
    with tempfile.TemporaryDirectory() as folder:
        shards = write_split(Path(folder), "train", iter(documents), dtype, shard_tokens)
        assert sorted(file.name for file in Path(folder).iterdir()) == sorted(
            f"train-{index:05d}.{what}" for index in range(len(shards)) for what in ("tokens", "documents")
        )
        streams, tables = [], []
        for index, shard in enumerate(shards):
            assert shard["file"] == f"train-{index:05d}.tokens"
            tokens_file = Path(folder) / shard["file"]
            documents_file = tokens_file.with_suffix(".documents")
            assert shard["sha256"] == hashlib.sha256(tokens_file.read_bytes()).hexdigest()
            assert shard["documents_sha256"] == hashlib.sha256(documents_file.read_bytes()).hexdigest()
            stream = np.fromfile(tokens_file, "<u2" if dtype == "uint16" else "<u4")
            table = np.fromfile(documents_file, "<i8").reshape(-1, 2)
            assert shard["tokens"] == len(stream) == table[:, 0].sum()
            assert shard["documents"] == len(table) >= 1
            assert len(stream) <= shard_tokens or len(table) == 1 or np.count_nonzero(table[:, 0]) == 1
            streams.append(stream)
            tables.append(table)
    assert np.concatenate([np.empty(0), *streams]).tolist() == list(range(start))
    assert [tuple(row) for table in tables for row in table.tolist()] == lengths


def test_shards_are_filled_as_far_as_documents_fit(tmp_path: Path) -> None:
    documents = [(np.zeros(length, np.uint32), 1) for length in (4, 4, 4, 25, 1, 9, 1)]
    shards = write_split(tmp_path, "held_out", documents, "uint16", 10)
    assert [shard["tokens"] for shard in shards] == [8, 4, 25, 10, 1]


def test_equal_documents_make_equal_bytes_whatever_their_integer_type(tmp_path: Path) -> None:
    ids = np.arange(1000)
    first = write_split(tmp_path / "a", "train", [(ids.astype(np.uint32), 7)], "uint16", 100)
    second = write_split(tmp_path / "b", "train", [(ids.astype(np.int64), 7)], "uint16", 100)
    assert first == second


def test_no_documents_make_no_shard(tmp_path: Path) -> None:
    assert write_split(tmp_path, "train", [], "uint16", 10) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("token", [1 << 16, -1])
def test_ids_that_do_not_fit_are_refused_and_nothing_is_left(tmp_path: Path, token: int) -> None:
    with pytest.raises(StokerError, match="do not fit uint16"):
        write_split(tmp_path, "train", [(np.asarray([1, token]), 1)], "uint16", 10)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_source_leaves_whole_shards_only(tmp_path: Path) -> None:
    def documents():  # type: ignore[no-untyped-def]
        yield np.zeros(8, np.uint32), 1
        yield np.zeros(8, np.uint32), 1
        yield np.zeros(2, np.uint32), 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write_split(tmp_path, "train", documents(), "uint16", 8)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "train-00000.documents",
        "train-00000.tokens",
        "train-00001.documents",
        "train-00001.tokens",
    ]


def test_the_narrowest_type_that_holds_the_vocabulary() -> None:
    assert token_dtype(1) == token_dtype(1 << 16) == "uint16"
    assert token_dtype((1 << 16) + 1) == "uint32"
