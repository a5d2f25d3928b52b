"""Alphabets: to which one a character belongs, and which languages are written in it.

Most alphabets name their language. Latin, Cyrillic, Arabic and Devanagari are shared by many, which a model
tells apart; Chinese characters are Japanese where kana stand among them.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stoker.data.categories import are_in, code_points_in

CODE_POINTS = 0x110000

NONE, LATIN, CYRILLIC, ARABIC, DEVANAGARI, HAN, KANA, HANGUL = range(8)
SHARED = {LATIN: "LATIN", CYRILLIC: "CYRILLIC", ARABIC: "ARABIC", DEVANAGARI: "DEVANAGARI"}
"""Alphabets of many languages, by the first word of their characters' Unicode names."""
_OF_ONE_LANGUAGE = {
    "GREEK": "el",
    "HEBREW": "he",
    "ARMENIAN": "hy",
    "GEORGIAN": "ka",
    "THAI": "th",
    "LAO": "lo",
    "KHMER": "km",
    "MYANMAR": "my",
    "TIBETAN": "bo",
    "ETHIOPIC": "am",
    "BENGALI": "bn",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "ORIYA": "or",
    "SINHALA": "si",
    "MONGOLIAN": "mn",
}
LANGUAGE_OF: dict[int, str] = dict(enumerate(_OF_ONE_LANGUAGE.values(), HANGUL + 1)) | {HANGUL: "ko"}
"""The language of each alphabet that one language alone is written in (or by far the most text)."""
ALPHABETS = HANGUL + 1 + len(_OF_ONE_LANGUAGE)
BYTES = np.asarray([0, 1, 2, 2, 3, 3, 3, 3, *(2,) * 3, *(3,) * (len(_OF_ONE_LANGUAGE) - 3)], dtype=np.float64)
"""Bytes of a letter of each alphabet in UTF-8."""

_NAMED = {name: number for number, name in SHARED.items()} | {
    name: number for number, name in enumerate(_OF_ONE_LANGUAGE, HANGUL + 1)
}
_NAMED |= {"HIRAGANA": KANA, "KATAKANA": KANA, "HANGUL": HANGUL, "CJK": HAN}
_HAN_BLOCKS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
_HANGUL_SYLLABLES = ((0xAC00, 0xD7A3),)
_NOT_PLAIN = ("Lu", "Lt", "N", "So", "Z", "Cc")
"""Categories of the characters that have a lower case, or are digits or blanks."""

DIGIT, BLANK, NEW_LINE, GAP = ord("0"), ord(" "), ord("\n"), ord("\t")


@lru_cache(maxsize=1)
def alphabet_table() -> npt.NDArray[np.uint8]:
    """The alphabet of each code point, `NONE` for all but letters and their marks; uint8 [0x110000]."""
    table = np.zeros(CODE_POINTS, dtype=np.uint8)
    asked = are_in("LM")
    for own, blocks in ((HAN, _HAN_BLOCKS), (HANGUL, _HANGUL_SYLLABLES)):
        for first, last in blocks:
            table[first : last + 1] = own
            asked[first : last + 1] = False
    for code_point in np.flatnonzero(asked).tolist():
        name = unicodedata.name(chr(code_point), "").removeprefix("HALFWIDTH ").removeprefix("FULLWIDTH ")
        table[code_point] = _NAMED.get(name.partition(" ")[0], NONE)
    return table


@lru_cache(maxsize=1)
def plain_table() -> npt.NDArray[np.uint32]:
    """Each code point as the model sees it: lower case, digits as 0, blanks as one; uint32 [0x110000]."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    for code_point in code_points_in(_NOT_PLAIN):
        character = chr(code_point)
        if character.isspace():
            table[code_point] = NEW_LINE if character in "\n\r\x0b\x0c\u2028\u2029" else BLANK
        elif character.isdigit():
            table[code_point] = DIGIT
        elif len(lower := character.lower()) == 1:
            table[code_point] = ord(lower)
    return table
