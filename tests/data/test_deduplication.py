"""Near-duplicates: what was planted is found, and nothing else is removed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.deduplication import (
    Duplicate,
    bands_and_rows,
    content_digest,
    exact_duplicates,
    near_duplicates,
    near_training_text,
    sign,
)
from stoker.recipe import Deduplication
from tests.data.test_minhash import plain_jaccard
from tests.data.written_text import MANNERS, chinese, edited, english

SETTINGS = Deduplication()


def planted(manner: str, originals: int, lowest: float) -> tuple[list[str], list[int]]:
    """Different texts, then an edited copy of each that is just similar enough: (texts, which one each copies)."""
    texts = [MANNERS[manner](seed) for seed in range(originals)]
    copies, of = [], []
    for index, text in enumerate(texts):
        edits = 1
        copy = text
        while plain_jaccard(text, changed := edited(text, manner, edits, index)) >= lowest:
            copy, edits = changed, edits + 1
        if copy != text:
            copies.append(copy)
            of.append(index)
    return texts + copies, of


@pytest.mark.parametrize("manner", MANNERS)
def test_planted_copies_are_found_and_nothing_else(manner: str) -> None:
    texts, of = planted(manner, 150, SETTINGS.threshold)
    originals = len(texts) - len(of)
    assert len(of) > 140
    near_the_edge = [plain_jaccard(texts[of[i]], texts[originals + i]) for i in range(len(of))]
    assert min(near_the_edge) < 0.83  # the hard ones are among them

    removed = near_duplicates(texts, SETTINGS)

    found = {duplicate.index: duplicate for duplicate in removed}
    recalled = sum(originals + i in found for i in range(len(of)))
    assert recalled / len(of) >= 0.98
    for duplicate in removed:
        measured = plain_jaccard(texts[duplicate.index], texts[duplicate.duplicate_of])
        assert measured >= SETTINGS.threshold
        assert duplicate.similarity == pytest.approx(measured)
        assert duplicate.duplicate_of not in found


def test_copies_just_below_the_threshold_stay() -> None:
    text = chinese(0, 800)
    edits = next(n for n in range(1, 200) if plain_jaccard(text, edited(text, "chinese", n, 1)) < 0.8)
    assert near_duplicates([text, edited(text, "chinese", edits, 1)], SETTINGS) == []


def test_copies_that_differ_in_case_width_or_spacing_are_found() -> None:
    texts = [
        english(1),
        "Python 3 是一种解释型语言，语法简单，标准库丰富，适合初学者学习。",
        english(1).upper(),
        "Ｐｙｔｈｏｎ　３　是一种解释型语言,语法简单,标准库丰富,适合初学者学习。",
        " ".join(english(1).split()),
    ]
    assert near_duplicates(texts, SETTINGS) == [
        Duplicate(2, 0, 1.0),
        Duplicate(3, 1, 1.0),
        Duplicate(4, 0, 1.0),
    ]


def test_a_removed_document_removes_no_other() -> None:
    """In a chain where each resembles only its neighbours, the second goes and the third stays."""
    settings = Deduplication(threshold=0.7)
    first = english(3, 200)
    second = edited(first, "english", 6, 1)
    third = edited(second, "english", 6, 2)
    assert plain_jaccard(first, second) >= 0.7
    assert plain_jaccard(second, third) >= 0.7
    assert plain_jaccard(first, third) < 0.7
    assert [(d.index, d.duplicate_of) for d in near_duplicates([first, second, third], settings)] == [(1, 0)]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=25), st.integers(0, 10**6))
def test_the_earliest_of_equal_texts_survives(choices: list[int], seed: int) -> None:
    texts = [english(choice, 40) for choice in choices]
    removed = near_duplicates(texts, SETTINGS)
    first = {choice: choices.index(choice) for choice in choices}
    assert [(d.index, d.duplicate_of) for d in removed] == [
        (index, first[choice]) for index, choice in enumerate(choices) if first[choice] != index
    ]


def test_many_copies_of_one_text_all_name_the_first() -> None:
    texts = [english(0, 60)] * 3000
    removed = near_duplicates(texts, SETTINGS)
    assert len(removed) == 2999
    assert {d.duplicate_of for d in removed} == {0}


def test_short_texts_are_compared_whole_and_texts_without_words_never() -> None:
    texts = ["Yes.", "yes", "No.", "好", "好！", "...", "。。。", ""]
    assert [(d.index, d.duplicate_of) for d in near_duplicates(texts, SETTINGS)] == [(1, 0), (4, 3)]


def test_signatures_made_elsewhere_in_parts_give_the_same_result() -> None:
    texts, _ = planted("english", 40, 0.85)
    parts = np.concatenate([sign(texts[start : start + 7], SETTINGS) for start in range(0, len(texts), 7)])
    assert near_duplicates(texts, SETTINGS, parts) == near_duplicates(texts, SETTINGS)


def test_texts_are_fetched_only_where_something_must_be_verified() -> None:
    class Fetched(list[str]):
        asked: set[int] = set()  # noqa: RUF012

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            self.asked.add(index)
            return super().__getitem__(index)

    texts = Fetched([english(seed) for seed in range(100)] + [english(7)])
    assert len(near_duplicates(texts, SETTINGS, sign(iter(texts), SETTINGS))) == 1
    assert texts.asked == {7, 100}


def test_held_out_text_that_repeats_training_text_is_named() -> None:
    training = [english(seed) for seed in range(20)] + [chinese(seed) for seed in range(20)]
    held_out = [english(100), edited(english(4), "english", 3, 0), chinese(100), chinese(9), english(100)]
    removed = near_training_text(held_out, training, SETTINGS)
    assert [(d.index, d.duplicate_of) for d in removed] == [(1, 4), (3, 29)]
    assert removed[0].similarity == pytest.approx(plain_jaccard(held_out[1], training[4]))
    assert removed[1].similarity == 1.0
    assert near_training_text([], training, SETTINGS) == []
    assert near_training_text(held_out, [], SETTINGS) == []


def test_exact_duplicates_name_the_first() -> None:
    texts = ["a", "b", "a", "A", "b", "a"]
    removed = exact_duplicates(map(content_digest, texts))
    assert [(d.index, d.duplicate_of) for d in removed] == [(2, 0), (4, 1), (5, 0)]


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.9, 1.0])
@pytest.mark.parametrize("permutations", [16, 64, 128, 500])
def test_bands_find_pairs_at_the_threshold(threshold: float, permutations: int) -> None:
    bands, rows = bands_and_rows(Deduplication(threshold=threshold, permutations=permutations))
    assert bands * rows <= permutations
    assert 1 - (1 - threshold**rows) ** bands >= 0.98


def test_settings_that_could_not_find_what_they_seek_are_refused() -> None:
    with pytest.raises(ValueError, match="use at least 390 permutations"):
        Deduplication(threshold=0.01)


def test_no_texts_at_all() -> None:
    assert near_duplicates([], SETTINGS) == []
    assert sign([], SETTINGS).shape == (0, 128)


def test_the_order_of_unrelated_texts_does_not_matter() -> None:
    texts, _ = planted("code", 30, 0.9)
    removed = {texts[d.index] for d in near_duplicates(texts, SETTINGS)}
    shuffled = texts[:30]
    random.Random(1).shuffle(shuffled)
    assert {(shuffled + texts[30:])[d.index] for d in near_duplicates(shuffled + texts[30:], SETTINGS)} == removed
