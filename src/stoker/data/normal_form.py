"""The normal form in which texts are compared, as tables of code points.

It ignores case, width and compatibility variants (each character's NFKC case fold), spacing, invisible characters
and punctuation; for the comparison of documents also the difference between traditional and simplified Chinese.
A character of the normal form is part of a word, a token by itself, a break between tokens, or skipped.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stoker.data.categories import FIRST_PLANES, are_in, code_points_in
from stoker.data.script.folding import simplified_table

CODE_POINTS = 0x110000
BREAK, WORD, ALONE, SKIP = 0, 1, 2, 3
"""What a character is: the end of a word, a part of one, a token by itself, nothing at all."""
KIND_SHIFT = 24
"""Where the kind begins in an entry of `NormalForm.entries`; below it lies the code point."""
EXPANDED = np.uint32(1 << 31)
"""Mark of an entry that stands for several characters."""

_COMPATIBILITY_IDEOGRAPHS = (0x2F800, 0x2FA20)
_SYMBOLS_AMONG_PUNCTUATION = frozenset("-*/%&@#\\")
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK and Kangxi radicals
    (0x3005, 0x3007),  # 々〆〇
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3040, 0x30FF),  # kana
    (0x3105, 0x312F),  # Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),  # Myanmar Extended
    (0xF900, 0xFAFF),
    (0x16FE0, 0x18CFF),  # Tangut, Khitan
    (0x1AFF0, 0x1B2FF),  # kana supplements, Nushu
    (0x20000, 0x3FFFF),  # Han extensions
)


@dataclass(frozen=True)
class NormalForm:
    """What each code point becomes.

    `entries[c]` is `kind << KIND_SHIFT | code point`, or `EXPANDED + k` for the entries
    `expansions[starts[k]:starts[k + 1]]`.
    """

    entries: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int64]
    expansions: npt.NDArray[np.uint32]


@lru_cache(maxsize=3)
def normal_form(symbols: bool = True, one_script: bool = False) -> NormalForm:
    """The tables, made once in each process.

    Without `symbols`, signs such as `+` and `/` are breaks. With `one_script`, traditional Chinese characters
    become simplified ones.
    """
    fold, kind, starts, expansions = _folded_and_kinds()
    if not symbols:
        kind = kind.copy()
        first_planes = kind[:FIRST_PLANES]
        first_planes[(first_planes == ALONE) & are_in("PS")] = BREAK
    single = fold < EXPANDED
    point = np.where(single, fold, 0)
    if one_script:
        simplified = simplified_table()
        point, expansions = simplified[point], simplified[expansions]
    kinds = kind.astype(np.uint32) << np.uint32(KIND_SHIFT)
    entries = np.where(single, point | kinds[point], fold)
    return NormalForm(entries.astype(np.uint32), starts, (expansions | kinds[expansions]).astype(np.uint32))


def folded(code_points: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Code points, each by itself brought to its normal form where that is a single character."""
    normal = _folded_and_kinds()[0][code_points]
    return np.where(normal < EXPANDED, normal, code_points)


_Folded = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint32]]


@lru_cache(maxsize=1)
def _folded_and_kinds() -> _Folded:
    """(fold, kind, starts, expansions): the NFKC case fold of each code point, and what each code point is."""
    fold = np.arange(CODE_POINTS, dtype=np.uint32)
    starts, expansions = [0], list[int]()
    for code_point in (*code_points_in("LMNPSZ"), *range(*_COMPATIBILITY_IDEOGRAPHS)):
        character = chr(code_point)
        if not unicodedata.decomposition(character) and character.casefold() == character:
            continue
        normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())
        if normal == character:
            continue
        if len(normal) == 1:
            fold[code_point] = ord(normal)
        else:
            fold[code_point] = EXPANDED + np.uint32(len(starts) - 1)
            expansions.extend(map(ord, normal))
            starts.append(len(expansions))
    kind = _kinds()
    for first, last in _UNSPACED:
        block = kind[first : last + 1]
        block[:] = np.where((block == WORD) | (first >= 0x20000), ALONE, block)
    return fold, kind, np.asarray(starts, np.int64), np.asarray(expansions, np.uint32)


def _kinds() -> npt.NDArray[np.uint8]:
    """What each code point is by its category alone."""
    kind = np.full(CODE_POINTS, BREAK, dtype=np.uint8)
    first_planes = kind[:FIRST_PLANES]
    first_planes[are_in(("L", "M", "N", "Pc", "Co"))] = WORD
    first_planes[are_in("S")] = ALONE
    first_planes[[ord(character) for character in _SYMBOLS_AMONG_PUNCTUATION]] = ALONE
    first_planes[are_in(("Cf",))] = SKIP
    kind[slice(*_COMPATIBILITY_IDEOGRAPHS)] = WORD
    kind[0xE0000:0xE1000] = SKIP
    return kind
