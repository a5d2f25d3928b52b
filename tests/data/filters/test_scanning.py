"""The kernels count what plain Python counts."""

from __future__ import annotations

import base64
import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.filters import MEASURES
from stoker.data.filters.encoded import encoded_characters
from stoker.data.filters.function_words import english_share
from stoker.data.filters.phrases import STOCK_PHRASES
from stoker.data.filters.scanning import count_characters, counted_runs, cut_lines, seen_before
from stoker.data.filters.text import Text
from stoker.data.minhash import code_points, token_hashes

MIXED = st.text(alphabet="abZé的中あー한1٣ .,。$=-\n\t\u3000\ue000\U00020000", max_size=200)


@given(MIXED)
def test_every_character_is_counted_in_one_class(text: str) -> None:
    count = count_characters(code_points(text))
    classes = (count.spaces, count.letters, count.digits, count.punctuation, count.symbols, count.others)
    assert sum(classes) == count.total == len(text)
    assert count.spaces == sum(character.isspace() for character in text)
    assert count.han == sum(character in "的中\U00020000" for character in text)
    assert count.other_unspaced == sum(character in "あー" for character in text)
    assert count.latin == sum(character in "abZé" for character in text)
    assert count.digits == sum(character in "1٣" for character in text)
    assert count.others == text.count("\ue000")
    assert count.spaced_words == len(re.findall("[abZé한]+", text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a" * 21, 21), ("a" * 20, 0), ("=" * 80, 0), (" " * 80, 0), ("x" + "哈" * 50 + "y", 50), ("ab" * 50, 0)],
)
def test_long_runs_are_of_one_character_that_does_not_lay_out(text: str, expected: int) -> None:
    assert count_characters(code_points(text)).in_long_runs == expected


@pytest.mark.parametrize(("text", "expected"), [("ÐÞ¸´", 4), ("a ÐÞ¸´µ± b", 6), ("ÐÞ¸", 0), ("déjà vu à l'été", 0)])
def test_runs_of_latin_1_are_those_that_no_language_has(text: str, expected: int) -> None:
    assert count_characters(code_points(text)).in_latin_1_runs == expected


@given(MIXED)
def test_lines_are_cut_and_known_again_as_python_does_it(text: str) -> None:
    lines = cut_lines(code_points(text))
    own = [stripped for line in text.split("\n") if (stripped := line.strip())]
    assert lines.lengths.tolist() == [len(line) for line in own]
    assert lines.first.tolist() == [ord(line[0]) for line in own]
    assert lines.last.tolist() == [ord(line[-1]) for line in own]
    assert seen_before(lines.hashes).tolist() == [line in own[:i] for i, line in enumerate(own)]


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=60))
def test_repetitions_are_counted_as_a_counter_does(values: list[int]) -> None:
    counts = Counter(values)
    repeated, twins, most = counted_runs(np.asarray(values, np.uint64))
    assert repeated == len(values) - len(counts)
    assert twins == sum(count for count in counts.values() if count > 1)
    assert most == max(counts.values(), default=0)


def test_encoded_bytes_are_counted_and_words_are_not() -> None:
    data = random.Random(0).randbytes(300)

    def encoded(text: str) -> int:
        return encoded_characters(text, code_points(text))

    word = base64.b64encode(data).decode()
    assert encoded(f"x = '{word}'") == len(word.rstrip("="))
    listed = ", ".join(f"0x{byte:02x}" for byte in data)
    assert encoded(f"{{ {listed}, }}") == len(listed) + 2
    escaped = "".join(f"\\x{byte:02x}" for byte in data)
    assert encoded(f'"{escaped}"') == len(escaped)
    assert encoded(data.hex()) == 600
    few = "0x01, 0x02, 0x03 and \\x01\\x02, a_name_of_sixty_letters_that_underscores_hold_together_as_words_do"
    assert encoded(few) == 0


def test_function_words_are_told_from_other_words() -> None:
    assert english_share(token_hashes("The cat and THE dog")) == pytest.approx(3 / 5)
    assert english_share(token_hashes("cheap hotel paris")) == 0
    assert english_share(token_hashes("")) == 0


def test_longer_stock_phrases_are_found_where_a_shorter_one_begins_them() -> None:
    inside = [
        (short, long)
        for short in STOCK_PHRASES.phrases
        for long in STOCK_PHRASES.phrases
        if short != long and long.startswith(short)
    ]
    assert inside
    for short, long in inside:
        counts = STOCK_PHRASES.counts(code_points(long))
        assert counts[STOCK_PHRASES.phrases.index(long)] == 1
        assert counts[STOCK_PHRASES.phrases.index(short)] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://a.example/b?c=1 and www.example.org or http://x.example", 23 + 15 + 16),
        ("one https://a.example/b only", 0),
    ],
)
def test_addresses_are_measured_where_there_are_several(text: str, expected: int) -> None:
    share = MEASURES["filter.address_share"](Text(text, "prose"))
    visible = sum(not character.isspace() for character in text)
    assert share == pytest.approx(expected / visible, abs=1 / visible)
