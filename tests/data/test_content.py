"""What a text is made of is estimated well enough to see what filters take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.content import CJK_SHARE, CODE_SHARE, FORMULA_SHARE, content_of


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("今天天气很好。Hello", 6),
        ("こんにちは", 5),
        ("안녕하세요", 5),
        ("naïve café", 0),
        ("𠮷野家", 3),
    ],
)
def test_characters_of_chinese_japanese_and_korean_are_counted(text: str, characters: int) -> None:
    assert content_of(text).cjk == characters


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("so $x^2 + y^2$ holds", len("$x^2 + y^2$")),
        ("$$\na = b\n$$", len("$$\na = b\n$$")),
        (r"so \(a + b\) and \[c\]", len(r"\(a + b\)") + len(r"\[c\]")),
        (r"\alpha and \beta", len(r"\alpha") + len(r"\beta")),
        ("∀x ∈ S", 2),
        ("it costs $5 and then $10 more", 0),
        ("my $name = $value;", 0),
        (r"\fBls\fR lists", 0),
        ("a lone $ sign and a backslash \\", 0),
        ("$a\n\nb$", 0),
    ],
)
def test_formulae_are_counted_and_money_and_variables_are_none(text: str, characters: int) -> None:
    assert content_of(text).formula == characters


@pytest.mark.parametrize(
    "line",
    [
        "    return value[0]",
        "if (a && b) {",
        "x = f(y)",
        "#include <stdio.h>",
        "std::cout << x;",
        "// what follows",
    ],
)
def test_lines_of_programs_are_code(line: str) -> None:
    assert content_of(line).code == len(line)


@pytest.mark.parametrize(
    "line",
    [
        "It was the best of times, it was the worst of times.",
        "He said: there are three (or four) of them.",
        "# A heading",
        "- an item, and more",
        r"\begin{align} a = b; \end{align}",
        "床前明月光，疑是地上霜。",
    ],
)
def test_prose_verse_and_formulae_are_no_code(line: str) -> None:
    assert content_of(line).code == 0


def test_real_modules_are_code_and_the_licence_is_prose() -> None:
    folder = Path(json.__file__).parent.parent
    for name in ("json/decoder.py", "argparse.py", "heapq.py"):
        text = (folder / name).read_text(encoding="utf-8")
        assert content_of(text).code >= CODE_SHARE * len(text)
        assert content_of(text).formula < FORMULA_SHARE * len(text)
        assert content_of(text).cjk < CJK_SHARE * len(text)
    licence = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")
    assert content_of(licence).code < CODE_SHARE * len(licence)


@given(st.text(st.characters()))
def test_no_text_has_more_of_a_class_than_characters(text: str) -> None:
    found = content_of(text)
    assert 0 <= found.cjk <= len(text)
    assert 0 <= found.formula <= len(text)
    assert 0 <= found.code <= len(text)


def test_items_of_a_list_inside_of_a_list_are_no_code() -> None:
    assert content_of("- a kiln:\n  - of brick (old),\n  - of clay:\n").code == 0
    assert content_of("if x:\n  call(y)\n").code > 0
