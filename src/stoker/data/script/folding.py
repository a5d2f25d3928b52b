"""One form for characters that readers take for the same: tables for comparing text, never for training on it.

Each table maps a code point to one code point, so that it folds an array of code points by a single look-up:
`table[code_points(text)]`. Folding twice is folding once.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stoker.data.script.characters import script_characters

CODE_POINTS = 0x110000
_LAST_WITH_CASE = 0x20000
_FULL_WIDTH = (0xFF01, 0xFF5E)
_FROM_FULL_WIDTH = 0xFF01 - 0x21

Table = npt.NDArray[np.uint32]


@lru_cache(maxsize=1)
def simplified_table() -> Table:
    """Traditional Chinese characters to simplified ones, uint32 [0x110000]; all others to themselves."""
    pairs = script_characters().simplified
    return _closed({ord(traditional): ord(simplified) for traditional, simplified in pairs.items()})


@lru_cache(maxsize=1)
def folding_table() -> Table:
    """Traditional to simplified, upper to lower case, full to half width and back, uint32 [0x110000].

    Full-width letters, digits and signs become ASCII, the ideographic space a space, half-width kana and
    hangul full-width ones. A character whose lower case is more than one code point stays as it is.
    """
    folded: dict[int, int] = {0x3000: 0x20}
    for code_point in range(_LAST_WITH_CASE):
        character = _usual_width(chr(code_point))
        lower = character.lower()
        if len(lower) == 1 and ord(lower) != code_point:
            folded[code_point] = ord(lower)
    table = _closed(folded)
    return np.asarray(table[simplified_table()], dtype=np.uint32)


def _usual_width(character: str) -> str:
    """Of full-width ASCII and half-width kana and hangul: the same character in its usual width."""
    if _FULL_WIDTH[0] <= ord(character) <= _FULL_WIDTH[1]:
        return chr(ord(character) - _FROM_FULL_WIDTH)
    if unicodedata.decomposition(character).startswith(("<narrow>", "<wide>")):
        return unicodedata.normalize("NFKC", character)[:1]
    return character


def _closed(folded: dict[int, int]) -> Table:
    """The table of `folded`, applied until nothing changes."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    own, to = (np.fromiter(points, np.uint32, len(folded)) for points in (folded.keys(), folded.values()))
    table[own] = to
    while not np.array_equal(again := table[to], to):
        table[own] = to = again
    return table
