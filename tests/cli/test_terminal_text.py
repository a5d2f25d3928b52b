"""Nothing that a document says reaches a terminal as an order."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.terminal_text import lines_printable, one_line, printable


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("invoice\u202efdp.exe", r"invoice\u202efdp.exe"),
        ("a\x9b2Jb", r"a\x9b2Jb"),
        ("back\x08\x08", r"back\x08\x08"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("line\u2028end", r"line\u2028end"),
        ("lone\ud800", r"lone\ud800"),
    ],
)
def test_what_would_move_colour_or_hide_is_written_out(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown


def test_lines_stay_lines_and_are_harmless() -> None:
    assert lines_printable("a\x1b[2J.txt:\n  今天\r\n") == "a\\x1b[2J.txt:\n  今天 \n"


@pytest.mark.parametrize(
    "text", ["plain text", "今天天气很好。", "می\u200cخواهم", "👩\u200d👧", "∑ αβ ≤ ∞", "naïve"]
)
def test_text_of_any_script_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert one_line(f" {text} \n\n {text}") == f"{text} {text}"


@given(st.text(st.characters()))
def test_nothing_without_a_shape_is_left(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() or {unicodedata.category(one) for one in shown if not one.isprintable()} <= {
        "Cf",
        "Zs",
    }
    assert "\x1b" not in shown
    assert "\n" not in shown
