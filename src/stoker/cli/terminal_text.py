"""Text from anywhere, made harmless for a terminal."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
"""They shape letters of several scripts and move nothing."""
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def printable(text: str) -> str:
    r"""`text` in one line in which nothing moves a cursor, colours, reverses or hides what follows.

    Blanks become one space each; control characters, directional marks, halves of pairs and other characters
    without a shape stand as `\x1b` or `\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def one_line(text: str) -> str:
    """`printable` of the text, with every run of blanks as one space."""
    return printable(" ".join(text.split()))


def lines_printable(text: str) -> str:
    """`printable` of each line."""
    return "\n".join(map(printable, text.split("\n")))


def _shown(character: str) -> str:
    if character.isspace() and character not in "\u2028\u2029\x1c\x1d\x1e\x1f\x85":
        return " "
    if unicodedata.category(character) not in _UNSEEN or character in _JOINERS:
        return character
    point = ord(character)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
