from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.feeding import Feed, HeldOut
from tests.data.corpora import BOS, EOS, build_corpus, byte_document, recipe_for

texts = st.lists(st.text(st.sampled_from("ab é中🙂"), max_size=12), min_size=1, max_size=6)


def held_out_of(
    folder: Path, documents: list[list[int]], L: int, max_sequences: int | None = None, **corpus: Any
) -> HeldOut:
    splits = {"train": [list(range(50))], "held_out": documents}
    built = build_corpus(folder / "corpus", {"other": {"train": [list(range(50))]}, "a": splits}, **corpus)
    return Feed(built, recipe_for(built, L, evaluation={"micro_batch_size": 3})).held_out("a", max_sequences)


def counted_targets(held_out: HeldOut) -> list[int]:
    return [t for batch in held_out.batches for t in batch.targets.flatten().tolist() if t >= 0]


@given(texts, st.integers(2, 20))
def test_every_token_but_a_documents_first_is_predicted_once(words: list[str], L: int) -> None:
    documents = [byte_document(word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        held_out = held_out_of(Path(folder), documents, L)
        targets = counted_targets(held_out)
    assert Counter(targets) == Counter(token for document in documents for token in document[1:])
    assert held_out.tokens == len(targets)
    assert held_out.documents == len(words)
    assert held_out.bytes == sum(len(word.encode()) for word in words)


@given(texts, st.integers(2, 9), st.integers(1, 6))
def test_bytes_are_those_that_the_counted_targets_spell(words: list[str], L: int, sequences: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        held_out = held_out_of(Path(folder), [byte_document(word) for word in words], L, sequences)
        targets = counted_targets(held_out)
    assert held_out.tokens == len(targets)
    spelled = bytes(token for token in targets if token < 256)
    # Only the last document can have been cut, and only within a character is there anything to leave out.
    assert held_out.bytes == len(spelled.decode(errors="ignore").encode())
    assert sum(len(batch) for batch in held_out.batches) <= sequences


@given(texts, st.integers(2, 9), st.one_of(st.none(), st.integers(1, 6)))
def test_without_a_first_special_token_a_documents_first_bytes_do_not_count(
    words: list[str], L: int, sequences: int | None
) -> None:
    words = [f"x{word}" for word in words]
    documents = [byte_document(word, bos=False) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        held_out = held_out_of(Path(folder), documents, L, sequences, adds_bos=False)
        targets = counted_targets(held_out)
    assert held_out.tokens == len(targets)
    spelled = bytes(token for token in targets if token < 256)
    assert held_out.bytes == len(spelled.decode(errors="ignore").encode())


def test_padding_predicts_nothing_and_is_a_document_of_its_own(tmp_path: Path) -> None:
    held_out = held_out_of(tmp_path, [byte_document("abcdef")], 5)
    (batch,) = held_out.batches
    assert batch.tokens[0].tolist() == [BOS, *b"abcd"]
    assert batch.targets[1].tolist() == [ord("f"), EOS, -100, -100, -100]
    assert batch.documents[1].tolist() == [0, 0, 0, 1, 1]
    assert batch.positions[1].tolist() == [0, 1, 2, 0, 1]


def test_a_document_that_ends_with_a_sequence_leaves_no_empty_sequence(tmp_path: Path) -> None:
    held_out = held_out_of(tmp_path, [byte_document("abc")], 4)
    assert [batch.targets.tolist() for batch in held_out.batches] == [[[*b"abc", EOS]]]


def test_a_document_that_is_cut_off_is_predicted_up_to_the_end_of_the_sequence(tmp_path: Path) -> None:
    held_out = held_out_of(tmp_path, [byte_document("abcdefgh")], 4, max_sequences=1)
    assert [batch.targets.tolist() for batch in held_out.batches] == [[[*b"abcd"]]]
    assert (held_out.tokens, held_out.bytes, held_out.documents) == (4, 4, 1)


def test_batches_have_the_evaluations_size_and_know_their_source(tmp_path: Path) -> None:
    held_out = held_out_of(tmp_path, [byte_document("a" * 50)], 8)
    assert [len(batch) for batch in held_out.batches] == [3, 3, 1]
    assert [batch.samples.tolist() for batch in held_out.batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert {source for batch in held_out.batches for source in batch.sources.tolist()} == {1}
    assert held_out.batches[-1].tokens.tolist() == held_out.batches[2].tokens.tolist()
    with pytest.raises(IndexError):
        held_out.batches[3]


def test_a_few_sequences_are_the_beginning_of_more(tmp_path: Path) -> None:
    documents = [byte_document("word " * length) for length in range(1, 12)]
    few = held_out_of(tmp_path / "few", documents, 16, max_sequences=4)
    more = held_out_of(tmp_path / "more", documents, 16)
    assert len(few.batches) == 2
    assert few.batches[0].tokens.tolist() == more.batches[0].tokens.tolist()
    assert few.batches[1].tokens.tolist() == more.batches[1].tokens[:1].tolist()


def test_the_text_does_not_depend_on_the_seed(tmp_path: Path) -> None:
    documents = [byte_document(letter * 9) for letter in "abcdefgh"]
    built = build_corpus(tmp_path / "c", {"a": {"train": documents, "held_out": documents}})
    one, other = (Feed(built, recipe_for(built, 8, seed=seed)).held_out("a") for seed in (1, 2))
    assert [b.tokens.tolist() for b in one.batches] == [b.tokens.tolist() for b in other.batches]


def test_nothing_held_out_gives_no_batches(tmp_path: Path) -> None:
    built = build_corpus(tmp_path / "c", {"a": {"train": [[1] * 20], "held_out": []}, "b": {"train": [[1] * 20]}})
    feed = Feed(built, recipe_for(built, 8))
    for source in "ab":
        held_out = feed.held_out(source, 5)
        assert (list(held_out.batches), held_out.tokens, held_out.bytes) == ([], 0, 0)


def test_documents_of_one_token_alone_leave_nothing_to_predict(tmp_path: Path) -> None:
    held_out = held_out_of(tmp_path, [[65], [66], [67]], 4, adds_bos=False)
    assert (counted_targets(held_out), held_out.tokens, held_out.bytes) == ([], 0, 0)
