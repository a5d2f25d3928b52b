"""One pass over a text's characters and one over its lines: what most measures of the filters follow from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.categories import FIRST_PLANES, are_in
from stoker.data.filters.function_words import CHINESE
from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes
from stoker.data.mojibake import COMMON_AS_GBK

_CODE_POINTS = 0x110000
_OTHER, _SPACE, _LATIN, _SPACED_LETTER, _HAN, _UNSPACED_LETTER, _DIGIT, _PUNCTUATION, _SYMBOL = range(9)
_UNSPACED_BLOCKS = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x2FDF), (0x3040, 0x31FF))
_HAN_BLOCKS = ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_LATIN_BLOCKS = ((0x41, 0x24F), (0x1E00, 0x1EFF))
_CLASS, _FUNCTION_CHARACTER, _AS_GBK = 0x0F, 0x10, 0x20
"""Of an entry of the table: its class, whether it is among the commonest of Chinese, and of misread Chinese."""
_LONG_RUN = 20
_LATIN_1_RUN = 4
_LAYOUT = np.asarray([ord(character) for character in "-=_.*~+#|─━═│"], dtype=np.uint32)

_FULL_STOPS = ".!?\"'”’»)]。．！？…」』）】；;"
"""What a line of running text ends with, a closing quotation mark or bracket behind it included."""
_BULLETS = "•‣▶◀◦■□▪▫–-*●"


@dataclass(frozen=True, slots=True)
class Characters:
    """How many characters of each class a text has."""

    total: int
    spaces: int
    latin: int
    """Letters and marks of the Latin script."""
    other_spaced: int
    """Letters and marks of the other scripts that put spaces between words."""
    han: int
    other_unspaced: int
    """Characters of the other scripts without spaces: kana, Bopomofo, Thai, Lao, Khmer, Myanmar."""
    digits: int
    punctuation: int
    symbols: int
    others: int
    """Control, private and unassigned characters."""
    spaced_words: int
    """Runs of letters of scripts that put spaces between words."""
    in_long_runs: int
    """Characters in runs of one and the same character longer than 20. Blanks and the rules that lay out a
    page (`-----`, `=====`, `.....`) do not count."""
    as_latin_1: int
    """`Â`, `Ã`, `ï` and `â` to `é`: what the first byte of a character becomes in UTF-8 that is read as Latin-1."""
    in_latin_1_runs: int
    """Characters in runs of 4 or more of the upper half of Latin-1 (`ÐÞ¸´`), which no language has: what Chinese
    becomes when its bytes are read as Latin-1."""
    function_characters: int
    """Of `han`, the commonest in Chinese text."""
    as_gbk: int
    """Of `han`, the commonest in Chinese text that was read in a wrong encoding."""

    @property
    def visible(self) -> int:
        """Characters that are not blanks."""
        return self.total - self.spaces

    @property
    def spaced_letters(self) -> int:
        """Letters of scripts that put spaces between words."""
        return self.latin + self.other_spaced

    @property
    def unspaced_letters(self) -> int:
        """Characters of scripts that do not."""
        return self.han + self.other_unspaced

    @property
    def letters(self) -> int:
        """Letters of any script."""
        return self.spaced_letters + self.unspaced_letters


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a text that are not blank, without the blanks around them."""

    lengths: npt.NDArray[np.int64]
    """Characters of each [lines]."""
    hashes: Hashes
    """Equal for equal lines [lines]."""
    last: npt.NDArray[np.uint32]
    """Code point that each ends with [lines]."""
    first: npt.NDArray[np.uint32]
    """Code point that each begins with [lines]."""

    def __len__(self) -> int:
        return len(self.lengths)


@lru_cache(maxsize=1)
def classes() -> npt.NDArray[np.uint8]:
    """The class of each code point in the low bits, and two marks: uint8 [code points]."""
    table = np.full(_CODE_POINTS, _OTHER, dtype=np.uint8)
    by_category = {"LM": _SPACED_LETTER, "N": _DIGIT, "P": _PUNCTUATION, "S": _SYMBOL, "Z": _SPACE}
    for initials, own in by_category.items():
        table[:FIRST_PLANES][are_in(initials)] = own
    table[[0x09, 0x0A, 0x0C, 0x0D]] = _SPACE
    for blocks, own in ((_UNSPACED_BLOCKS, _UNSPACED_LETTER), (_LATIN_BLOCKS, _LATIN)):
        for first, last in blocks:
            block = table[first : last + 1]
            block[block == _SPACED_LETTER] = own
    for first, last in _HAN_BLOCKS:
        table[first : last + 1] = _HAN
    table[[ord(character) for character in CHINESE]] |= _FUNCTION_CHARACTER
    table[[ord(character) for character in set(COMMON_AS_GBK)]] |= _AS_GBK
    return table


def count_characters(code_points: npt.NDArray[np.uint32]) -> Characters:
    """Count the characters of a text, given as code points [characters], by class."""
    counts, of_classes = _counted(code_points, classes(), _LAYOUT)
    return Characters(len(code_points), *of_classes[[_SPACE, *range(_LATIN, 9), _OTHER]].tolist(), *counts)


@compiled
def _counted(own: Any, classes: Any, layout: Any) -> Any:
    of_classes = np.zeros(9, np.int64)
    words, in_runs, run, in_latin_1, latin_1, as_latin_1, function, as_gbk = 0, 0, 0, 0, 0, 0, 0, 0
    in_word = False
    for i in range(own.size):
        entry = classes[own[i]]
        what = entry & _CLASS
        of_classes[what] += 1
        if what == _HAN:
            function += (entry & _FUNCTION_CHARACTER) != 0
            as_gbk += (entry & _AS_GBK) != 0
        letter = what in (_LATIN, _SPACED_LETTER)
        words += letter and not in_word
        in_word = letter
        if 0xA1 <= own[i] <= 0xFF:
            latin_1 += 1
            as_latin_1 += own[i] in (0xC2, 0xC3, 0xEF) or 0xE2 <= own[i] <= 0xE9
        elif latin_1:
            in_latin_1 += latin_1 if latin_1 >= _LATIN_1_RUN else 0
            latin_1 = 0
        run += 1
        if i + 1 == own.size or own[i + 1] != own[i]:
            if run > _LONG_RUN and what != _SPACE and not (layout == own[i]).any():
                in_runs += run
            run = 0
    in_latin_1 += latin_1 if latin_1 >= _LATIN_1_RUN else 0
    return (words, in_runs, as_latin_1, in_latin_1, function, as_gbk), of_classes


def cut_lines(code_points: npt.NDArray[np.uint32]) -> Lines:
    """The lines of a text, given as code points [characters]."""
    return Lines(*_lines(code_points, classes()))


@compiled
def _lines(own: Any, classes: Any) -> Any:
    room = 1
    for i in range(own.size):
        room += own[i] == 10
    lengths = np.empty(room, np.int64)
    hashes = np.empty(room, np.uint64)
    last = np.empty(room, np.uint32)
    first = np.empty(room, np.uint32)
    count, start, stop = 0, -1, 0
    for i in range(own.size + 1):
        if i == own.size or own[i] == 10:
            if start >= 0:
                value = np.uint64(0xCBF29CE484222325)
                for j in range(start, stop):
                    value = (value ^ np.uint64(own[j])) * np.uint64(0x100000001B3)
                value ^= value >> np.uint64(32)
                lengths[count], hashes[count] = stop - start, value * np.uint64(0x9E3779B97F4A7C15)
                last[count], first[count] = own[stop - 1], own[start]
                count += 1
            start = -1
        elif classes[own[i]] & _CLASS != _SPACE:
            if start < 0:
                start = i
            stop = i + 1
    return lengths[:count], hashes[:count], last[:count], first[:count]


def seen_before(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """Which of `hashes` equal an earlier one [hashes]."""
    seen: npt.NDArray[np.bool_] = _seen_before(hashes)
    return seen


def counted_runs(hashes: Hashes) -> tuple[int, int, int]:
    """(how many of `hashes` equal an earlier one, how many equal any other, how often the commonest occurs)."""
    repeated, twins, most = _counted_runs(hashes)
    return int(repeated), int(twins), int(most)


@compiled
def room_for(entries: int) -> int:
    """Places of a table, a power of two, of which so many entries take at most half."""
    room = 16
    while room < 2 * entries:
        room *= 2
    return room


@compiled
def _seen_before(hashes: Any) -> Any:
    seen = np.zeros(hashes.size, np.bool_)
    room = room_for(hashes.size)
    table = np.full(room, -1, np.int32)
    for i in range(hashes.size):
        place = np.int64(hashes[i] >> np.uint64(32)) & (room - 1)
        while table[place] >= 0 and hashes[table[place]] != hashes[i]:
            place = (place + 1) & (room - 1)
        if table[place] >= 0:
            seen[i] = True
        else:
            table[place] = i
    return seen


@compiled
def _counted_runs(hashes: Any) -> Any:
    room = room_for(hashes.size)
    table = np.full(room, -1, np.int32)
    counts = np.zeros(room, np.int32)
    repeated, pairs, most = 0, 0, 0
    for i in range(hashes.size):
        place = np.int64(hashes[i] >> np.uint64(32)) & (room - 1)
        while table[place] >= 0 and hashes[table[place]] != hashes[i]:
            place = (place + 1) & (room - 1)
        if table[place] >= 0:
            repeated += 1
        else:
            table[place] = i
        counts[place] += 1
        pairs += counts[place] == 2
        if counts[place] > most:
            most = counts[place]
    return repeated, repeated + pairs, most


def ends_a_sentence(last: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Which of the code points end a line of running text."""
    found: npt.NDArray[np.bool_] = _table_of(_FULL_STOPS)[last]
    return found


def begins_with_a_bullet(first: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Which of the code points are bullets, with which points of a list begin."""
    found: npt.NDArray[np.bool_] = _table_of(_BULLETS)[first]
    return found


@lru_cache(maxsize=2)
def _table_of(characters: str) -> npt.NDArray[np.bool_]:
    """Whether each code point is one of these characters [code points]."""
    table = np.zeros(_CODE_POINTS, np.bool_)
    table[[ord(character) for character in characters]] = True
    return table
