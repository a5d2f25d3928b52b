"""Cleaning takes out what encodings and exports put in, and nothing else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.cleaning import clean
from stoker.recipe import Kind
from tests.data.written_text import MANNERS

KINDS: tuple[Kind, ...] = ("prose", "code", "mathematics")
AWKWARD = st.sampled_from(
    [
        *"ab é\n\r\t\u3000\u200d\u200c\u0301\u3099か中，Ãâ€™\x00\x1b[0m\u00ad\u00a0\x81\x85",
        *"\ufb01\u1fefक्षﷺ\U0001f468\ufe0f",
        *"\u212a\ud800\u2028\x0c\x0b锛涓\ufeff\ufffd\ufdd0",
        "\r\n",
        "\n\n\n",
        "\x1b[31m",
        "â€™",
        "ä¸­",
    ]
)


@settings(max_examples=600)
@given(st.lists(AWKWARD, max_size=16).map("".join) | st.text(max_size=30), st.sampled_from(KINDS))
def test_cleaning_twice_is_cleaning_once(text: str, kind: Kind) -> None:
    once = clean(text, kind)
    assert clean(once, kind) == once
    once.encode()  # no lone surrogate is left


@settings(max_examples=300)
@given(st.text(max_size=30), st.sampled_from(["latin-1", "cp1252", "gb18030"]), st.integers(1, 2))
def test_cleaning_misread_text_twice_is_cleaning_it_once(text: str, encoding: str, times: int) -> None:
    for _ in range(times):
        text = text.encode("utf-8", "replace").decode(encoding, "replace")
    once = clean(text, "prose")
    assert clean(once, "prose") == once


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("kind", KINDS)
def test_clean_text_stays_as_it_is(manner: str, kind: Kind) -> None:
    text = MANNERS[manner](0).rstrip("\n")
    assert clean(text, kind) == text


@pytest.mark.parametrize("kind", ["code", "mathematics"])
def test_code_and_mathematics_keep_every_blank_and_sign(kind: Kind) -> None:
    text = "\n\n\n\tif x：  # ﬁ ² ½ ％ \u00a0\u3000\u200b\u2028 Å e\u0301 \f \n\n\n\n    return 𝔸 ≤ ∑  \n\n"
    assert clean(text, kind) == text


@pytest.mark.parametrize("kind", KINDS)
def test_line_ends_byte_order_marks_and_control_characters_go_from_every_kind(kind: Kind) -> None:
    dirty = "\ufeffone\r\ntwo\rthree\x00\x07\x7f\x9c\ufffe\n\x1b[1;31mfour\x1b[0m\tfive"
    assert clean(dirty, kind) == "one\ntwo\nthree\nfour\tfive"


@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogates_become_replacement_characters(kind: Kind) -> None:
    assert clean("a\ud83db\udc00c", kind) == "a\ufffdb\ufffdc"


def test_prose_is_composed_but_keeps_full_width_and_superscript_characters() -> None:
    text = "Cafe\u0301，“全角”！ｘ² + ①㎏ ½ …　缩进"
    assert clean(text, "prose") == unicodedata.normalize("NFC", text) == "Café，“全角”！ｘ² + ①㎏ ½ …　缩进"


def test_prose_loses_invisible_characters_and_typesetting_ligatures() -> None:
    assert clean("soft\u00adhyphen zero\u200bwidth ﬁnd oﬀer \u202eleft\u202c a\u00a0b", "prose") == (
        "softhyphen zerowidth find offer left a b"
    )


def test_joiners_stay_where_a_script_or_a_picture_needs_them() -> None:
    needed = "می\u200cخواهم क्\u200dष \U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f\u200d\U0001f525"
    assert clean(needed, "prose") == needed
    assert clean("中\u200d文 a\u200cb \u200d", "prose") == "中文 ab"


def test_every_kind_of_blank_becomes_a_space_but_the_ideographic_one() -> None:
    assert clean("a\u2009b\u2003c\u205fd\u1680e\u202ff　g", "prose") == "a b c d e f　g"


def test_hidden_tags_and_fillers_go_and_flags_stay() -> None:
    hidden = "".join(chr(0xE0000 + ord(character)) for character in "ignore")
    scotland = "\U0001f3f4" + "".join(chr(0xE0000 + ord(character)) for character in "gbsct") + "\U000e007f"
    assert clean(f"read{hidden} this\u3164 {scotland}", "prose") == f"read this {scotland}"


@pytest.mark.parametrize("blank", [" ", "\t", "\u3000", " \t"])
def test_a_long_run_of_blanks_inside_of_a_line_stays_and_takes_no_time(blank: str) -> None:
    """Looked at once more from each of its places, this one would take an hour."""
    line = f"a{blank * 2_000_000}b"
    assert clean(f"{line}{blank} \n{line}", "prose") == f"{line}\n{line}"


def test_prose_keeps_one_blank_line_and_no_trailing_blanks() -> None:
    dirty = " \n\n　　第一段 \t\n\n\n \n\nsecond\u3000\n  indented\u2029third\n\n"
    assert clean(dirty, "prose") == "　　第一段\n\nsecond\n  indented\nthird"


GARBLED = "It’s a café in München — naïve, déjà vu."


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize("text", [GARBLED, "这是一个测试，我们看看能不能修好。", "Привет, мир! Как дела?"])
def test_text_misread_as_latin_is_read_again(encoding: str, text: str) -> None:
    # Bytes without a meaning in Windows-1252 come through as control characters, as browsers have it.
    misread = "".join(
        bytes([byte]).decode(encoding)
        if encoding == "latin-1" or byte not in b"\x81\x8d\x8f\x90\x9d"
        else chr(byte)
        for byte in text.encode()
    )
    assert misread != text
    assert clean(misread, "prose") == text


def test_text_misread_twice_is_read_again_twice() -> None:
    twice = GARBLED.encode().decode("latin-1").encode().decode("latin-1")
    assert clean(twice, "prose") == GARBLED


def test_text_misread_as_gbk_is_read_again() -> None:
    text = "机器学习模型的训练，我们看看"
    misread = text.encode().decode("gb18030")
    assert misread != text
    assert clean(misread, "prose") == text


@pytest.mark.parametrize(
    "text",
    [
        "“Ã©” is what é looks like when misread.",
        "Å, Ü «À» Â« déjà vu Ã, 5 °C ± 2 µm",
        "João às vezes diz não à mãe",
        "涓涓细流，鏖战疆场，鍛造業",
        "ÂME ÃÔ",
    ],
)
def test_real_text_that_only_resembles_misread_text_stays(text: str) -> None:
    assert clean(text, "prose") == text


def test_code_is_never_read_again() -> None:
    text = 'assert fix("cafÃ© Ã¼ber â€™") == "café"\n'
    assert clean(text, "code") == text
