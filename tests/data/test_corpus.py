from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.corpus import Corpus, DamagedCorpus
from stoker.errors import StokerError
from tests.data.corpora import BOS, EOS, VOCABULARY_SIZE, build_corpus

DOCUMENTS = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10], [11], [12, 13], [14, 15, 16]]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    splits = {"train": DOCUMENTS, "held_out": [[20, 21]]}
    return build_corpus(tmp_path / "corpus", {"a": splits, "b": {"train": [[30] * 5], "held_out": []}})


def test_the_manifest_tells_tokenizer_and_sources(corpus: Corpus) -> None:
    assert corpus.source_names == ("a", "b")
    assert (corpus.vocabulary_size, corpus.bos_id, corpus.eos_id) == (VOCABULARY_SIZE, BOS, EOS)
    assert corpus.tokenizer_path.is_file()
    assert corpus.manifest["fingerprint"] == corpus.fingerprint


def test_a_store_counts_and_returns_its_documents(corpus: Corpus) -> None:
    store = corpus.store("a", "train")
    assert (store.document_count, store.token_count) == (7, 16)
    assert store.document_lengths.tolist() == [3, 1, 2, 4, 1, 2, 3]
    assert store.document_bytes.tolist() == [3, 1, 2, 4, 1, 2, 3]
    assert store.document_starts.tolist() == [0, 3, 4, 6, 10, 11, 13, 16]
    assert [store.document_tokens(i).tolist() for i in range(7)] == DOCUMENTS
    assert store.read(0, 1).dtype == np.int64


def test_reads_run_across_shards(corpus: Corpus) -> None:
    store = corpus.store("a", "train")
    for start in range(17):
        for stop in range(start, 17):
            assert store.read(start, stop).tolist() == list(range(start + 1, stop + 1))


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (5, 4), (0, 17)])
def test_reads_outside_a_store_are_refused(corpus: Corpus, start: int, stop: int) -> None:
    with pytest.raises(IndexError):
        corpus.store("a", "train").read(start, stop)


@pytest.mark.parametrize("document", [-1, 7])
def test_documents_outside_a_store_are_refused(corpus: Corpus, document: int) -> None:
    with pytest.raises(IndexError):
        corpus.store("a", "train").document_tokens(document)


def test_an_empty_or_absent_split_is_an_empty_store(tmp_path: Path) -> None:
    corpus = build_corpus(tmp_path / "c", {"a": {"train": [[1]], "held_out": []}, "b": {"train": [[1]]}})
    for source in "ab":
        store = corpus.store(source, "held_out")
        assert (store.document_count, store.token_count) == (0, 0)
        assert store.document_lengths.tolist() == []
        assert store.read(0, 0).tolist() == []


def test_documents_without_tokens_and_empty_shards_do_no_harm(tmp_path: Path) -> None:
    documents: list[list[int]] = [[], [1, 2], [], [], [], [3]]
    store = build_corpus(tmp_path / "c", {"a": {"train": documents}}, documents_per_shard=2).store("a", "train")
    assert [store.document_tokens(i).tolist() for i in range(6)] == documents
    out = np.zeros(3, np.int64)
    store.copy_runs(store.document_starts[[1, 5]], np.array([2, 1]), out, np.array([0, 2]))
    assert out.tolist() == [1, 2, 3]


def test_large_vocabularies_are_read_from_four_bytes(tmp_path: Path) -> None:
    documents = [[70_000, 2**32 - 1], [0]]
    corpus = build_corpus(tmp_path / "c", {"a": {"train": documents}}, dtype="uint32", vocabulary_size=2**32)
    assert corpus.store("a", "train").read(0, 3).tolist() == [70_000, 2**32 - 1, 0]


def test_a_token_that_the_vocabulary_does_not_have_is_a_damaged_file(tmp_path: Path) -> None:
    documents = [[1], [2], [3], [4, VOCABULARY_SIZE, 5]]
    store = build_corpus(tmp_path / "c", {"a": {"train": documents}}).store("a", "train")
    assert store.read(0, 4).tolist() == [1, 2, 3, 4]
    with pytest.raises(
        DamagedCorpus, match=r"train-00001\.tokens: it holds token 258, and the vocabulary ends at 257"
    ):
        store.read(2, 6)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=12), st.integers(1, 5), st.data())
def test_runs_are_copied_alike_whether_short_or_long(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], per_shard: int, data: st.DataObject
) -> None:
    numbers = iter(range(10_000))
    documents = [[next(numbers) for _ in range(length)] for length in lengths]
    folder = tmp_path_factory.mktemp("corpus") / "c"
    store = build_corpus(folder, {"a": {"train": documents}}, documents_per_shard=per_shard).store("a", "train")
    not_empty = [i for i, length in enumerate(lengths) if length]
    chosen = data.draw(st.lists(st.sampled_from(not_empty), max_size=20)) if not_empty else []
    starts = store.document_starts[np.array(chosen, np.int64)]
    sizes = store.document_lengths[np.array(chosen, np.int64)]
    out = np.full(int(sizes.sum()) + 1, -1)
    store.copy_runs(starts, sizes, out, np.cumsum(sizes) - sizes + 1)
    assert out.tolist() == [-1, *(token for i in chosen for token in documents[i])]


def remove(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


FILES = ["tokens/a/train-00001.tokens", "tokens/a/train-00001.documents", "tokens/a/held_out-00000.tokens"]


@pytest.mark.parametrize("damage", [remove, cut_short, lengthen])
@pytest.mark.parametrize("file", FILES)
def test_opening_names_a_file_of_the_wrong_size(corpus: Corpus, file: str, damage: Callable[[Path], None]) -> None:
    damage(corpus.folder / file)
    with pytest.raises(StokerError) as caught:
        Corpus.open(corpus.folder)
    assert str(corpus.folder / file) in str(caught.value)
    assert "stoker prepare RECIPE" in str(caught.value)


@pytest.mark.parametrize("file", FILES)
def test_verifying_names_a_file_whose_content_has_changed(corpus: Corpus, file: str) -> None:
    Corpus.open(corpus.folder, verify=True)
    alter(corpus.folder / file)
    Corpus.open(corpus.folder)
    with pytest.raises(DamagedCorpus, match="its content has changed") as caught:
        Corpus.open(corpus.folder, verify=True)
    assert str(corpus.folder / file) in str(caught.value)


@pytest.mark.parametrize("row", [(4, 3), (2, 3), (-3, 3), (3, -3)])
def test_document_lengths_that_do_not_add_up_are_noticed_on_reading(corpus: Corpus, row: tuple[int, int]) -> None:
    np.array([row], "<i8").tofile(corpus.folder / "tokens/a/train-00002.documents")
    store = Corpus.open(corpus.folder).store("a", "train")
    with pytest.raises(DamagedCorpus, match="expected 1 document of 3 tokens"):
        store.document_lengths  # noqa: B018


def test_a_missing_tokenizer_is_named(corpus: Corpus) -> None:
    corpus.tokenizer_path.unlink()
    with pytest.raises(DamagedCorpus, match=r"tokenizer\.json: missing"):
        Corpus.open(corpus.folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "not found"),
        (b"{", "not readable as JSON"),
        (b"\xff\xfe", "not readable as JSON"),
        (b"[" * 100_000, "not readable as JSON"),
        (b"[]", "format 1 expected, found list"),
        (b'{"format": 99}', "format 1 expected, found 99"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(corpus: Corpus, content: bytes | None, said: str) -> None:
    path = corpus.folder / "manifest.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(DamagedCorpus, match=said) as caught:
        Corpus.open(corpus.folder)
    assert str(path) in str(caught.value)


def _shard(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["sources"][0]["splits"]["train"]["shards"][0]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda it: it.pop("sources"), "`sources` is missing"),
        (lambda it: it.update(sources="abc"), "`sources` must be a list, found str"),
        (lambda it: it.update(tokenizer=None), "`tokenizer` must be an object"),
        (lambda it: it["tokenizer"].update(vocabulary_size=True), "`tokenizer.vocabulary_size` must be a whole"),
        (lambda it: it.update(dtype="int8"), "`dtype` must be one of uint16, uint32"),
        (lambda it: it.update(funnel="x"), "`funnel` must be a list"),
        (lambda it: it["sources"].append(it["sources"][0]), "is there twice"),
        (lambda it: it["sources"][0]["splits"].update(hald_out={}), "`hald_out` of the source `a` is no split"),
        (lambda it: it["sources"][0].update(name="../out"), "is no name of a source"),
        (lambda it: it["sources"][0].update(name="a\x1b[31mb"), "is no name of a source"),
        (lambda it: _shard(it).update(tokens="many"), "`shards.0..tokens` must be a whole number"),
        (lambda it: _shard(it).update(tokens=-5), "`shards.0..tokens` must be a whole number that is not negative"),
        (lambda it: _shard(it).update(file="../../etc/passwd"), "is no file of the corpus"),
        (lambda it: it["sources"][0]["splits"]["train"].update(tokens=1), "but its shards have"),
    ],
)
def test_a_manifest_edited_by_hand_is_refused_by_what_is_wrong(
    corpus: Corpus, edit: Callable[[dict[str, Any]], object], said: str
) -> None:
    path = corpus.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(DamagedCorpus, match=said) as caught:
        Corpus.open(corpus.folder)
    assert str(path) in str(caught.value)


def test_a_tokenizer_that_was_changed_is_noticed_on_opening(corpus: Corpus) -> None:
    corpus.tokenizer_path.write_text("{}")
    with pytest.raises(DamagedCorpus, match=r"tokenizer\.json: its content has changed"):
        Corpus.open(corpus.folder)


def test_an_unknown_source_is_an_error(corpus: Corpus) -> None:
    with pytest.raises(KeyError, match="no source 'c'"):
        corpus.store("c", "train")


def test_tokens_stay_on_disk(corpus: Corpus) -> None:
    store = corpus.store("a", "train")
    assert store.read(0, 1).tolist() == [1]
    with open(corpus.folder / "tokens/a/train-00000.tokens", "r+b") as stream:
        stream.write(np.array([77], "<u2").tobytes())
    assert store.read(0, 1).tolist() == [77]
