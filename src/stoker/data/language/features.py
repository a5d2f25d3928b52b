"""What the model sees of a text: hashes of its n-grams, and of the shapes of its words.

A text is first brought to plain form: lower case, every digit a 0, one blank for one, a gap for more (which is
how code is indented), letters of other alphabets than the one in question left out. Features are the n-grams of
1 to 4 characters of it, and, for what case and signs tell (`fooBar(x) {`), the runs of 2 to 4 shapes, where a
word is one shape (`a`, `A`, `Aa`), a number one, and every sign its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stoker.data.kernels import compiled
from stoker.data.language import alphabets

BUCKET_BITS = 18
LONGEST = 4
_BLANK, _NEW_LINE, _GAP, _DIGIT = alphabets.BLANK, alphabets.NEW_LINE, alphabets.GAP, alphabets.DIGIT
_WORD, _CAPITALS, _CAPITALISED, _MIXED = 1, 2, 3, 4
_OF_TEXT, _OF_SHAPES = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@compiled
def plain_form(own: Any, plain: Any, alphabet: Any, wanted: int) -> Any:
    """Code points `own` in plain form, and their shapes: (uint32 [n], uint32 [m]).

    Letters of alphabets other than `wanted` become blanks. A blank stands before and after everything.
    """
    text = np.empty(own.size + 2, np.uint32)
    shapes = np.empty(own.size + 2, np.uint32)
    text[0] = _BLANK
    length, count = 1, 0
    upper, lower = 0, 0
    for i in range(own.size + 1):
        character = plain[own[i]] if i < own.size else np.uint32(_BLANK)
        letters = alphabet[own[i]] if i < own.size else 0
        if letters != 0 and letters != wanted:
            character, letters = np.uint32(_BLANK), 0
        if letters != 0:
            if character != own[i]:
                upper += 1
                if lower > 0:
                    lower += 1000  # a capital inside a word
            else:
                lower += 1
        else:
            if upper + lower > 0:
                shapes[count] = _WORD if upper == 0 else _CAPITALS if lower == 0 else _CAPITALISED
                if lower >= 1000 or (upper > 1 and lower > 0):
                    shapes[count] = _MIXED
                count += 1
                upper, lower = 0, 0
            if character == _DIGIT:
                if count == 0 or shapes[count - 1] != _DIGIT:
                    shapes[count] = _DIGIT
                    count += 1
            elif character != _BLANK:
                shapes[count] = character
                count += 1
        before = text[length - 1]
        if character == _BLANK and before in (_BLANK, _GAP):
            if length > 1:
                text[length - 1] = _GAP
            continue
        if character == _BLANK and before == _NEW_LINE:
            text[length - 1] = _NEW_LINE
            if i + 1 < own.size and plain[own[i + 1]] == _BLANK:
                text[length] = _GAP
                length += 1
            continue
        if character == _NEW_LINE and before in (_BLANK, _GAP, _NEW_LINE):
            text[length - 1] = _NEW_LINE
            continue
        text[length] = character
        length += 1
    return text[:length], shapes[:count]


@compiled
def bucket(value: Any, seed: Any) -> Any:
    """The bucket of a hash."""
    value = (value ^ seed) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64((1 << BUCKET_BITS) - 1))


@compiled
def buckets_of(text: Any, shapes: Any) -> Any:
    """The buckets of all features of a text in plain form, int64 [features]."""
    out = np.empty(LONGEST * text.size + LONGEST * shapes.size, np.int64)
    count = 0
    for i in range(text.size):
        value = np.uint64(0)
        for size in range(min(LONGEST, text.size - i)):
            value = value * np.uint64(0x100000001B3) + np.uint64(text[i + size] + 1)
            if size == 0 and text[i] == _BLANK:
                continue
            out[count] = bucket(value, _OF_TEXT)
            count += 1
    for i in range(shapes.size):
        value = np.uint64(0)
        for size in range(min(LONGEST, shapes.size - i)):
            value = value * np.uint64(0x100000001B3) + np.uint64(shapes[i + size] + 1)
            if size > 0:
                out[count] = bucket(value, _OF_SHAPES)
                count += 1
    return out[:count]
