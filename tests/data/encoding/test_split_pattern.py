"""Patterns are read as what they mean, and others are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from stoker.data.encoding.split_pattern import (
    UNBOUNDED,
    Alternative,
    Repeat,
    UnreadablePattern,
    alternatives_of,
)
from stoker.data.encoding.splitting import TRIED, classify, end_of_word, split_table
from stoker.data.encoding.words import codes_of


def words_of(pattern: str, text: str) -> list[str]:
    table = split_table(alternatives_of(pattern))
    codes = codes_of(text)
    kinds = classify(codes, table.classes)
    tried = np.empty((TRIED, 2), np.int64)
    found, place = [], 0
    while place < len(codes):
        stop, _ = end_of_word(kinds, place, len(codes), *table[1:], tried)
        found.append(text[place:stop])
        place = stop
    return found


def test_a_pattern_is_read_as_alternatives_of_repeated_sets() -> None:
    assert alternatives_of(r"a?[bc]{2,3}|\s+(?!\S)|(?i:x|yz)\p{L}*(?:!|\?)?") == (
        Alternative((Repeat("a", 0, 1), Repeat("[bc]", 2, 3))),
        Alternative((Repeat(r"\s", 1, UNBOUNDED),), unless=r"\S"),
        Alternative(
            (Repeat("(?i:x)"), Repeat(r"\p{L}", 0, UNBOUNDED)),
            then=(Alternative((Repeat("!"),)), Alternative((Repeat(r"\?"),))),
        ),
        Alternative(
            (Repeat("(?i:y)"), Repeat("(?i:z)"), Repeat(r"\p{L}", 0, UNBOUNDED)),
            then=(Alternative((Repeat("!"),)), Alternative((Repeat(r"\?"),))),
        ),
    )


UNREADABLE = {
    "nothing": "",
    "may match nothing": "a*",
    "lazy": "a+?",
    "possessive": "a++",
    "behind": "(?<=a)b",
    "ahead": "a(?=b)",
    "repeated group": "(?:ab)+",
    "group behind a repetition": "a+(?:b|c)d",
    "not at the end": "a(?!b)c",
    "optional in the middle": "(?:ab)?c",
    "reference": r"(a)\1",
    "anchor": "^a",
    "open bracket": "[ab",
    "open group": "(?:a|b",
    "bare bracket": "a)",
    "any character": ".",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_pattern_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(UnreadablePattern):
        alternatives_of(UNREADABLE[name])


REPEATS = st.tuples(
    st.sampled_from(["a", "b", "[ab]", "[^a]", "[bc]"]),
    st.sampled_from(["", "?", "*", "+", "{2}", "{1,2}", "{2,}"]),
)
SEQUENCES = st.lists(REPEATS, min_size=1, max_size=4).map(lambda parts: "".join(map("".join, parts)))
ENDINGS = st.sampled_from(["", "", "(?!a)", "(?![bc])", "(?:a|bc)?"])
PATTERNS = st.lists(st.tuples(SEQUENCES, ENDINGS).map("".join), min_size=1, max_size=4).map("|".join)


@settings(max_examples=150)
@given(pattern=PATTERNS, text=st.text("abcd", max_size=30))
def test_drawn_patterns_split_as_the_library_splits(pattern: str, text: str) -> None:
    """All repetitions, with what they give back; the last alternative takes what the drawn ones leave."""
    try:
        alternatives_of(pattern)
    except UnreadablePattern:
        pattern = "[ab]+c?|" + r"[cd]{1,2}(?!a)"
    pattern += r"|\S"
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    assert words_of(pattern, text) == [piece for piece, _ in split.pre_tokenize_str(text)]


def test_what_no_alternative_matches_stays_together() -> None:
    assert words_of("a+|b", "xxaaybzz") == ["xx", "aa", "y", "b", "zz"]
    split = pre_tokenizers.Split(Regex("a+|b"), "isolated")
    assert [piece for piece, _ in split.pre_tokenize_str("xxaaybzz")] == ["xx", "aa", "y", "b", "zz"]
