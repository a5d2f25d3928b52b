"""Evaluation items are found in training text, long ones by runs and short ones by likeness; nothing else is."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.decontamination import EvaluationIndex
from stoker.data.decontamination.kernels import bucket_starts, looked_up, thinned
from stoker.data.operators.decontamination import without_marked_lines
from tests.data.written_text import MANNERS

QUESTION = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
    "How many clips did Natalia sell altogether in April and May?"
)
CHINESE = "小明在四月份向四十八位朋友出售了发夹，然后在五月份又卖出了一半数量的发夹，请问他一共卖出多少个？"
SHORT = "Which gas do plants take in?"
SHORT_CHINESE = "植物在白天吸收的主要气体是什么？"


def index(*items: str, ngram: int = 13, characters: int = 26) -> EvaluationIndex:
    return EvaluationIndex.of([(f"item {i}", item) for i, item in enumerate(items)], ngram, characters)


@pytest.mark.parametrize("item", [QUESTION, CHINESE, SHORT, SHORT_CHINESE])
def test_an_item_is_found_in_a_document_whatever_its_case_width_and_punctuation(item: str) -> None:
    own = index("Something else that nobody asks about in this place at all, ever.", item)
    for text in (item, item.upper(), item.replace(" ", "  ").replace(",", ";").replace("?", ""), f"（{item}）"):
        found = own.search(f"A page before it.\n{text}\nA page behind it.")
        assert found is not None
        assert own.name_of(found.item) == "item 1"
        assert found.overlap == 1.0


@pytest.mark.parametrize("item", [QUESTION, CHINESE, SHORT, SHORT_CHINESE])
def test_text_of_its_kind_is_not_taken_for_it(item: str) -> None:
    own = index(item)
    for manner in MANNERS.values():
        assert all(own.search(manner(seed, 60)) is None for seed in range(20))


def test_one_run_is_enough_and_the_overlap_says_how_much_of_the_item_stands_there() -> None:
    own = index(QUESTION)
    words = QUESTION.split()
    found = own.search("He wrote: " + " ".join(words[3:16]) + ", and left.")
    assert found is not None
    assert found.overlap == pytest.approx(1 / (len(words) - 12))
    assert own.search("He wrote: " + " ".join(words[3:15]) + ", and left.") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("They asked which gas the plants take in.", True),
        ("They asked which gas do animals take in.", True),
        ("They asked which gas is green and what plants need.", False),
        ("Plants take in a gas, but which?", False),
    ],
)
def test_a_short_item_is_found_with_a_word_changed_and_not_with_its_words_scattered(text: str, found: bool) -> None:
    assert (index(SHORT).search(text) is not None) is found


def test_a_short_chinese_item_is_found_with_a_character_changed() -> None:
    assert index(SHORT_CHINESE).search("老师问：植物在白天吸取的主要气体是什么呢？") is not None
    assert index(SHORT_CHINESE).search("老师问：动物在夜里呼出的气体主要是哪一种？") is None


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_short_item_with_few_substitutions_is_always_found(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randint(6, 12)
    words = ["".join(draw.choices("abcdefghijklmnop", k=8)) for _ in range(size)]
    changed = list(words)
    for place in draw.sample(range(size), size // 5):
        changed[place] = "other"
    found = index(" ".join(words)).search("before it " + " ".join(changed) + " behind it")
    assert found is not None
    assert found.overlap == pytest.approx((size - size // 5) / size)


@pytest.mark.parametrize("manner", ["english", "chinese"])
@pytest.mark.parametrize("words", [16, 60, 700])
def test_a_long_item_of_which_every_tenth_word_was_changed_is_found(manner: str, words: int) -> None:
    items = [MANNERS[manner](seed, words) for seed in range(30)]
    own = index(*items)
    for number, item in enumerate(items):
        units = item.split() if manner == "english" else list(item)
        for place in range(4, len(units), 10):
            units[place] = "otherwise" if manner == "english" else "变"
        changed = (" " if manner == "english" else "").join(units)
        found = own.search(f"{MANNERS[manner](900 + number, 50)}\n{changed}\nA page behind it.")
        assert found is not None
        assert (own.name_of(found.item), found.overlap > 0.8) == (f"item {number}", True)
        assert own.search(MANNERS[manner](5000 + number, words)) is None


def test_an_item_with_words_left_out_and_put_in_is_found() -> None:
    words = QUESTION.split()
    changed = [*words[:6], "very", *words[6:14], *words[15:22], "or", *words[23:]]
    found = index(QUESTION).search("They asked: " + " ".join(changed))
    assert found is not None
    assert found.overlap >= 0.9


@given(
    st.lists(st.integers(0, 2**64 - 1), unique=True, min_size=1, max_size=200), st.lists(st.integers(0, 2**64 - 1))
)
def test_every_key_is_looked_up_at_its_place_and_no_other(keys: list[int], others: list[int]) -> None:
    known = np.sort(np.asarray(keys, np.uint64))
    asked = np.asarray([*known.tolist(), *others], np.uint64)
    found = looked_up(asked, known, bucket_starts(known))
    assert found[: len(known)].tolist() == list(range(len(known)))
    assert [place >= 0 for place in found[len(known) :].tolist()] == [other in set(keys) for other in others]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 9))
def test_of_any_neighbouring_seeds_one_is_kept(hashes: list[int], window: int) -> None:
    kept = thinned(np.asarray(hashes, np.uint64), window).tolist()
    assert kept == sorted(set(kept))
    for start in range(max(1, len(hashes) - window + 1)):
        assert any(start <= place < start + window for place in kept)


def test_templates_prove_nothing_and_items_without_substance_are_counted() -> None:
    template = "Answer the following question by choosing the letter of the option that is right in every case"
    questions = [f"{template} {MANNERS['english'](seed, 30)}" for seed in range(12)]
    own = index(*questions, "Yes.", "1 2 3 4 5 6 7 8 9")
    assert own.search(f"The sheet said: {template}.") is None
    assert own.search(questions[3]) is not None
    assert own.not_looked_for == 2


def test_the_item_of_which_a_document_holds_most_is_named_the_first_where_there_are_several() -> None:
    own = index(QUESTION, CHINESE, QUESTION)
    found = own.search(" ".join(QUESTION.split()[:14]) + "\n" + CHINESE)
    assert found is not None
    assert own.name_of(found.item) == "item 1"
    found = own.search(QUESTION)
    assert found is not None
    assert own.name_of(found.item) == "item 0"


def test_lines_with_an_item_are_cut_and_the_others_stay() -> None:
    text = f"The first line, with its own words.\n\n{QUESTION}\nThe answer is easy.\n{SHORT}\n最后一行。"
    found = index(QUESTION, SHORT).search(text)
    assert found is not None
    expected = "The first line, with its own words.\n\nThe answer is easy.\n最后一行。"
    assert without_marked_lines(text, found.tokens) == expected


def test_every_occurrence_of_a_short_item_is_marked() -> None:
    text = f"{SHORT}\nFirst answer to it.\n{SHORT}\nSecond answer to it."
    found = index(SHORT).search(text)
    assert found is not None
    assert without_marked_lines(text, found.tokens) == "First answer to it.\nSecond answer to it."


@given(st.lists(st.text(alphabet="ab c中\n.", max_size=30), max_size=6), st.text(alphabet="ab c中\n.", max_size=80))
def test_any_items_and_any_text_can_be_searched(items: list[str], text: str) -> None:
    own = index(*items, ngram=6, characters=10)
    found = own.search(text)
    assert found is None or 0 < found.overlap <= 1
    if found is not None:
        without_marked_lines(text, found.tokens)
