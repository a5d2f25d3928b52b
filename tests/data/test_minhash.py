"""Shingles and signatures against a slow, separate statement of the same rules."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.kernels import compiled
from stoker.data.minhash import EMPTY, jaccard, shingle_set, sign, token_hashes
from tests.data.written_text import MANNERS

_ALONE = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0eff]")


def plain_tokens(text: str) -> list[str]:
    """Words, single characters of scripts without spaces, and single symbols, in the normal form."""
    normal = "".join(
        unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold()) for character in text
    )
    tokens: list[str] = []
    word = ""
    for character in normal:
        category = unicodedata.category(character)
        letter = category[0] in "LMN" or category in ("Pc", "Co")
        if letter and not _ALONE.match(character):
            word += character
            continue
        if category == "Cf":
            continue
        tokens += [word] if word else []
        word = ""
        if letter or category[0] == "S" or character in "-*/%&@#\\":
            tokens.append(character)
    return tokens + ([word] if word else [])


def plain_shingles(text: str, size: int = 5) -> set[tuple[str, ...]]:
    tokens = plain_tokens(text)
    if not tokens:
        return set()
    return {tuple(tokens[i : i + size]) for i in range(max(1, len(tokens) - size + 1))}


def plain_jaccard(one: str, other: str, size: int = 5) -> float:
    left, right = plain_shingles(one, size), plain_shingles(other, size)
    return len(left & right) / len(left | right) if left | right else 0.0


@given(st.text(st.sampled_from("ab Éß1_中文字かガﬁ①+-，。.\n\u200b\u0301ＡＢ"), max_size=60), st.integers(1, 7))
def test_shingles_are_those_of_the_plain_rules(text: str, size: int) -> None:
    assert len(token_hashes(text)) == len(plain_tokens(text))
    assert len(shingle_set(text, size)) == len(plain_shingles(text, size))


@given(st.text(max_size=80), st.text(max_size=80))
def test_jaccard_is_that_of_the_plain_rules_on_any_text(one: str, other: str) -> None:
    both = one + other
    measured = jaccard(shingle_set(one, 2), shingle_set(both, 2))
    # Scripts without spaces beyond those the plain rules list are cut more finely; compare where they do not occur.
    if all(ord(character) < 0x1000 or _ALONE.match(character) for character in both):
        assert measured == pytest.approx(plain_jaccard(one, both, 2))


@pytest.mark.parametrize("manner", MANNERS)
def test_signature_agreement_estimates_the_similarity(manner: str) -> None:
    one, other = MANNERS[manner](1), MANNERS[manner](2)
    mixed = one + other
    signatures = sign([one, mixed], 5, 1024)
    estimate = np.mean(signatures[0] == signatures[1])
    true = plain_jaccard(one, mixed)
    assert 0.3 < true < 0.7
    assert abs(estimate - true) < 5 * (true * (1 - true) / 1024) ** 0.5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The Quick BROWN fox", "the quick brown fox"),
        ("Ｐｙｔｈｏｎ　３．１１，版本", "python 3.11,版本"),
        ("使用Python语言编程", "使用 Python 语言 编程"),
        ("x=a+b", "x = a + b"),
        ("ｱｲｳ", "アイウ"),
        ("co\u00adoperate", "cooperate"),
        ("Straße", "STRASSE"),
        ("你好，世界！", "你好世界"),
    ],
)
def test_case_width_spacing_and_punctuation_do_not_matter(one: str, other: str) -> None:
    assert np.array_equal(token_hashes(one), token_hashes(other))


@pytest.mark.parametrize(("one", "other"), [("1 + 2 = 3", "1 - 2 = 3"), ("a*b", "a/b"), ("x < y", "x > y")])
def test_symbols_that_carry_meaning_do_matter(one: str, other: str) -> None:
    assert not np.array_equal(token_hashes(one), token_hashes(other))


def test_order_matters_and_short_texts_are_one_shingle() -> None:
    assert len(shingle_set("two words", 5)) == 1
    assert jaccard(shingle_set("two words", 5), shingle_set("words two", 5)) == 0.0
    assert jaccard(shingle_set("two words", 5), shingle_set("Two, words.", 5)) == 1.0


def test_a_text_without_tokens_has_an_empty_signature_and_resembles_nothing() -> None:
    assert (sign(["。，、 \n", ""], 5, 64) == EMPTY).all()
    assert jaccard(shingle_set("", 5), shingle_set("。", 5)) == 0.0


def test_a_kernel_without_a_place_for_its_cache_is_compiled_all_the_same() -> None:
    space: dict[str, object] = {}
    exec("def doubled(x):\n    return 2 * x", space)  # numba finds no file, hence no cache folder
    assert compiled(space["doubled"])(21) == 42  # type: ignore[arg-type]
