"""Repeated stretches of text against a plain search for them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.deduplication.substrings import minimizers, repeated_substrings
from stoker.data.minhash import utf8
from tests.data.deduplication.test_passages import remaining
from tests.data.written_text import MANNERS, chinese, english


def plainly(texts: list[bytes], length: int) -> list[bytes]:
    """What is left when every byte of every stretch that stood before is cut, one stretch after another."""
    seen: set[bytes] = set()
    left = []
    for text in texts:
        marked = bytearray(len(text))
        for start in range(len(text) - length + 1):
            if text[start : start + length] in seen:
                marked[start : start + length] = b"\1" * length
            seen.add(text[start : start + length])
        left.append(bytes(byte for byte, gone in zip(text, marked, strict=True) if not gone))
    return left


def cut(texts: list[str], length: int) -> list[str]:
    edits = repeated_substrings(np.arange(len(texts)), lambda index: utf8(texts[index]), length, Path("/tmp"))
    return remaining(edits, texts)


@given(st.lists(st.text(st.sampled_from("+-*/"), max_size=60), max_size=6), st.integers(4, 12))
def test_exactly_the_stretches_that_stood_before_are_cut(texts: list[str], length: int) -> None:
    assert cut(texts, length) == [text.decode() for text in plainly([text.encode() for text in texts], length)]


@pytest.mark.parametrize("manner", MANNERS)
def test_a_passage_put_into_other_texts_is_cut_from_the_later_ones(manner: str) -> None:
    passage = MANNERS[manner](99)[:200] + " "
    draw = random.Random(manner)
    texts = []
    for seed in range(12):
        own = MANNERS[manner](seed)
        place = draw.choice([i for i, character in enumerate(own) if character in " ，\n"]) + 1
        texts.append(own[:place] + passage + own[place:])
    left = cut(texts, 100)
    assert left[0] == texts[0]
    for before, after in zip(texts[1:], left[1:], strict=True):
        assert passage[8:-8] not in after
        # what happens to be equal beside it goes as well
        assert len(passage) - 8 <= len(before) - len(after) <= len(passage) + 24


def test_characters_and_words_are_not_cut_in_two() -> None:
    shared = "stretch of words that is the same in both of them"
    texts = ["one" + shared + "two", "three" + shared + "four", "甲" + chinese(1, 60), "乙" + chinese(1, 60)]
    left = cut(texts, 32)
    assert left[1] == "threestretch themfour"
    assert left[3] == "乙"
    assert left[::2] == texts[::2]


def test_shorter_repetitions_stay() -> None:
    text = english(1, 30)
    assert cut([text, text], len(text) + 1) == [text, text]
    assert cut([text, text], len(text)) == [text, ""]
    assert cut(["", ""], 50) == ["", ""]


def test_the_minimizers_of_a_stretch_are_the_same_wherever_it_stands() -> None:
    shared = english(5, 100)
    for before in ("", "x", english(6, 50)):
        text = utf8(before + shared + english(7, 30))
        keys, places = minimizers(text, 100)
        own = minimizers(utf8(shared), 100)
        inside = {(key, place - len(before)) for key, place in zip(keys.tolist(), places.tolist(), strict=True)}
        assert set(zip(own[0].tolist(), own[1].tolist(), strict=True)) <= inside
        assert len(places) < len(text) / 10
