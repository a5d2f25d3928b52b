"""Near-duplicates: what was planted is found, and nothing else is removed."""

from __future__ import annotations

import random
from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.deduplication import Duplicates, near_duplicates, near_others, sign
from stoker.data.minhash import utf8
from stoker.recipe import Deduplication
from tests.data.test_minhash import plain_jaccard
from tests.data.written_text import MANNERS, chinese, edited, english

SETTINGS = Deduplication()
CONNECTED = Deduplication(threshold=0.7, clusters="connected")


def pairs(removed: Duplicates) -> list[tuple[int, int]]:
    """(document, the one that it repeats)."""
    return [(index, original) for index, original, _ in removed.rows()]


def planted(manner: str, originals: int, lowest: float) -> tuple[list[str], list[int]]:
    """Different texts, then an edited copy of each that is just similar enough: (texts, which one each copies)."""
    texts = [MANNERS[manner](seed) for seed in range(originals)]
    copies, of = [], []
    for index, text in enumerate(texts):
        most = bisect_right(
            range(200), -lowest, key=lambda edits: -plain_jaccard(text, edited(text, manner, edits, index))
        )
        copy = edited(text, manner, most - 1, index)
        if copy != text:
            copies.append(copy)
            of.append(index)
    return texts + copies, of


@pytest.mark.parametrize("manner", MANNERS)
def test_planted_copies_are_found_and_nothing_else(manner: str) -> None:
    texts, of = planted(manner, 80, SETTINGS.threshold)
    originals = len(texts) - len(of)
    assert len(of) > 75
    near_the_edge = [plain_jaccard(texts[of[i]], texts[originals + i]) for i in range(len(of))]
    assert min(near_the_edge) < 0.83  # the hard ones are among them

    removed = near_duplicates(texts, SETTINGS)

    found = set(removed.index.tolist())
    recalled = sum(originals + i in found for i in range(len(of)))
    assert recalled / len(of) >= 0.98
    for index, original, similarity in removed.rows():
        measured = plain_jaccard(texts[index], texts[original])
        assert measured >= SETTINGS.threshold
        assert similarity == pytest.approx(measured)
        assert original not in found


def test_copies_just_below_the_threshold_stay() -> None:
    text = chinese(0, 800)
    edits = next(n for n in range(1, 200) if plain_jaccard(text, edited(text, "chinese", n, 1)) < 0.8)
    assert near_duplicates([text, edited(text, "chinese", edits, 1)], SETTINGS).rows() == []


def test_copies_that_differ_in_script_case_width_or_spacing_are_found() -> None:
    texts = [
        english(1),
        "Python 3 是一种解释型语言，语法简单，标准库丰富，适合初学者学习。",
        english(1).upper(),
        "Ｐｙｔｈｏｎ　３　是一种解释型语言,语法简单,标准库丰富,适合初学者学习。",
        " ".join(english(1).split()),
        "Python 3 是一種解釋型語言,語法簡單,標準庫豐富,適合初學者學習。",
    ]
    assert near_duplicates(texts, SETTINGS).rows() == [(2, 0, 1.0), (3, 1, 1.0), (4, 0, 1.0), (5, 1, 1.0)]


def test_a_removed_document_removes_no_other() -> None:
    """In a chain where each resembles only its neighbours, the second goes and the third stays."""
    settings = Deduplication(threshold=0.7)
    first = english(3, 200)
    second = edited(first, "english", 6, 1)
    third = edited(second, "english", 6, 2)
    assert plain_jaccard(first, second) >= 0.7
    assert plain_jaccard(second, third) >= 0.7
    assert plain_jaccard(first, third) < 0.7
    assert pairs(near_duplicates([first, second, third], settings)) == [(1, 0)]


def test_a_chain_of_resemblances_keeps_its_first_when_connected() -> None:
    first = english(3, 200)
    second = edited(first, "english", 6, 1)
    third = edited(second, "english", 6, 2)
    for order in ([first, second, third], [first, third, second], [third, first, second]):
        texts = [*order, english(4)]
        removed = near_duplicates(texts, CONNECTED)
        assert pairs(removed) == [(1, 0), (2, 0)]
        for index, original, similarity in removed.rows():
            assert similarity == pytest.approx(plain_jaccard(texts[index], texts[original]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_connected_clusters_are_the_components_of_all_similar_pairs(seed: int, count: int) -> None:
    draw = random.Random(seed)
    texts = [english(draw.randrange(3), 60)]
    while len(texts) < count:
        texts.append(edited(draw.choice(texts), "english", draw.randrange(5), draw.randrange(10**6)))
    similar = {
        (i, j) for i in range(count) for j in range(i) if plain_jaccard(texts[i], texts[j]) >= CONNECTED.threshold
    }
    heads = list(range(count))
    for _ in range(count):
        for i, j in similar:
            heads[i] = heads[j] = min(heads[i], heads[j])
    wanted = [(index, head) for index, head in enumerate(heads) if index != head]
    # 512 entries: no pair of these sizes is missed
    settings = Deduplication(threshold=0.7, clusters="connected", permutations=512, bands=128, rows=4)
    assert pairs(near_duplicates(texts, settings)) == wanted


def test_texts_may_be_given_as_bytes() -> None:
    texts, _ = planted("chinese", 20, 0.85)
    assert (
        near_duplicates([utf8(text) for text in texts], SETTINGS).rows() == near_duplicates(texts, SETTINGS).rows()
    )


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=25), st.integers(0, 10**6))
def test_the_earliest_of_equal_texts_survives(choices: list[int], seed: int) -> None:
    texts = [english(choice, 40) for choice in choices]
    removed = near_duplicates(texts, SETTINGS)
    first = {choice: choices.index(choice) for choice in choices}
    assert pairs(removed) == [
        (index, first[choice]) for index, choice in enumerate(choices) if first[choice] != index
    ]


def test_many_copies_of_one_text_all_name_the_first() -> None:
    texts = [english(0, 60)] * 3000
    removed = near_duplicates(texts, SETTINGS)
    assert len(removed) == 2999
    assert set(removed.duplicate_of.tolist()) == {0}


def test_short_texts_are_compared_whole_and_texts_without_words_never() -> None:
    texts = ["Yes.", "yes", "No.", "好", "好！", "...", "。。。", ""]
    assert pairs(near_duplicates(texts, SETTINGS)) == [(1, 0), (4, 3)]


def test_signatures_made_elsewhere_in_parts_give_the_same_result() -> None:
    texts, _ = planted("english", 40, 0.85)
    parts = np.concatenate([sign(texts[start : start + 7], SETTINGS) for start in range(0, len(texts), 7)])
    assert near_duplicates(texts, SETTINGS, parts).rows() == near_duplicates(texts, SETTINGS).rows()


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
    removed = near_others(held_out, training, SETTINGS)
    assert pairs(removed) == [(1, 4), (3, 29)]
    assert removed.similarity[0] == pytest.approx(plain_jaccard(held_out[1], training[4]))
    assert removed.similarity[1] == 1.0
    assert near_others([], training, SETTINGS).rows() == []
    assert near_others(held_out, [], SETTINGS).rows() == []


def test_settings_that_could_not_find_what_they_seek_are_refused() -> None:
    with pytest.raises(ValueError, match="use at least 390 permutations"):
        Deduplication(threshold=0.01)


def test_no_texts_at_all() -> None:
    assert near_duplicates([], SETTINGS).rows() == []
    assert sign([], SETTINGS).shape == (0, 128)


def test_the_order_of_unrelated_texts_does_not_matter() -> None:
    texts, _ = planted("code", 30, 0.9)
    removed = {texts[index] for index in near_duplicates(texts, SETTINGS).index}
    shuffled = texts[:30]
    random.Random(1).shuffle(shuffled)
    shuffled += texts[30:]
    assert {shuffled[index] for index in near_duplicates(shuffled, SETTINGS).index} == removed
