"""Bytes that stand in a text as base64, hexadecimal digits, lists of numbers or escapes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled

_LONG_WORD = 50
"""So many letters and digits in a row are encoded bytes (or a hash, which is as little text)."""
_MANY = 8
_LISTED = re.compile(r"(?:0x[0-9a-fA-F]{1,16}[,\s]+){8,}")
_NUMBERED = re.compile(r"(?:\d{1,3},\s{0,16}){16,}")
_ESCAPED = re.compile(r"(?:\\x[0-9a-fA-F]{2}){8,}")


def _word_characters() -> npt.NDArray[np.bool_]:
    table = np.zeros(128, np.bool_)
    for character in "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/":
        table[ord(character)] = True
    return table


_WORD_CHARACTERS = _word_characters()


def encoded_characters(text: str, code_points: npt.NDArray[np.uint32], numbers: bool = True) -> int:
    """How many characters of `text`, also given as code points [characters], are encoded bytes.

    Counted are words of 50 letters and digits or more, 8 or more in a row of `0x1f,` and of `\\x1f`, and, where
    `numbers` are asked for, 16 or more of `31,`.
    """
    found = int(_in_long_words(code_points, _WORD_CHARACTERS))
    for sign, pattern in (("0x", _LISTED), ("\\x", _ESCAPED)):
        if text.count(sign) >= _MANY:
            found += sum(len(match[0]) for match in pattern.finditer(text))
    if numbers and text.count(",") >= 2 * _MANY:
        found += sum(len(match[0]) for match in _NUMBERED.finditer(text))
    return found


@compiled
def _in_long_words(own: Any, word_characters: Any) -> int:
    found, run = 0, 0
    for i in range(own.size):
        if own[i] < 128 and word_characters[own[i]]:
            run += 1
        else:
            if run >= _LONG_WORD:
                found += run
            run = 0
    return found + (run if run >= _LONG_WORD else 0)
