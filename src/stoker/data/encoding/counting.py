"""How often each word of some text occurs, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.encoding.engine import BLOCK
from stoker.data.encoding.splitting import TRIED, SplitTable, classify, end_of_word
from stoker.data.encoding.words import (
    WORDS,
    WordTable,
    add_word,
    codes_of,
    has_room,
    slot_of,
    tag_of,
    word_table,
)
from stoker.data.kernels import compiled

_FIRST_BITS, _LETTERS_OF_SLOT = 14, 8
MOST_LETTERS = 1 << 24
"""Letters of distinct words that are counted; beyond, the rarest words are dropped until half of them are left."""


@dataclass(frozen=True)
class WordCounts:
    """Distinct words in the order in which they were first seen, and how often each was."""

    words: WordTable
    counts: npt.NDArray[np.int64]
    """[words]"""

    def __len__(self) -> int:
        return int(self.words.used[WORDS])


def count_words(pieces: Iterable[str], split: SplitTable, most_letters: int = MOST_LETTERS) -> WordCounts:
    """Count the words of `pieces`, each of which ends where words end.

    The outcome depends on the pieces alone. Where there are more distinct words than `most_letters` holds, rare
    ones are dropped, and one that comes again is counted from there.
    """
    found = _empty(_FIRST_BITS)
    for texts in _batches(pieces):
        codes = codes_of("".join(texts))
        ends = np.cumsum(np.asarray([len(text) for text in texts], np.int64))
        kinds = classify(codes, split.classes)
        place = 0
        while True:
            place = _count(codes, kinds, ends, place, split[1:], found.words, found.counts)
            if place == len(codes):
                break
            found = _with_room(found, most_letters)
    return WordCounts(found.words, found.counts[: len(found)])


def _batches(pieces: Iterable[str]) -> Iterable[list[str]]:
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield waiting
            waiting, size = [], 0
    yield waiting


def _empty(bits: int) -> WordCounts:
    table = word_table(bits, _LETTERS_OF_SLOT << bits)
    return WordCounts(table, np.zeros(len(table.starts), np.int64))


def _with_room(found: WordCounts, most_letters: int) -> WordCounts:
    """The same counts in a table of twice the size, or without the rarest where that would be too large."""
    bits = len(found.words.tags).bit_length() - 1
    least = 0
    if _LETTERS_OF_SLOT << bits >= most_letters:
        number, lengths = len(found), np.diff(found.words.starts[: len(found) + 1])
        while number > len(found) // 2 or lengths[found.counts[: len(found)] > least].sum() > most_letters // 2:
            least += 1
            number = int((found.counts[: len(found)] > least).sum())
    else:
        bits += 1
    larger = _empty(bits)
    _move(found.words, found.counts, least, larger.words, larger.counts)
    return larger


@compiled
def _count(codes: Any, kinds: Any, ends: Any, place: int, pattern: Any, table: Any, counts: Any) -> Any:
    """Count words from `place` on; returns the place of the first for which there is no room, or the end."""
    starters, alternatives, repeats = pattern
    tags, slots, starts, letters, used = table
    tried = np.empty((TRIED, 2), np.int64)
    for end in ends:
        while place < end:
            stop, _ = end_of_word(kinds, place, end, starters, alternatives, repeats, tried)
            tag = tag_of(codes, place, stop)
            slot = slot_of(tags, slots, starts, letters, tag, codes, place, stop)
            if tags[slot] == np.uint64(0):
                if not has_room(starts, letters, used, stop - place):
                    return place
                add_word(tags, slots, starts, letters, used, slot, tag, codes, place, stop)
            counts[slots[slot]] += 1
            place = stop
    return place


@compiled
def _move(table: Any, counts: Any, least: int, larger: Any, moved: Any) -> None:
    """Add the words that were counted more than `least` times to another table, in order."""
    _, _, starts, letters, used = table
    tags, slots, new_starts, new_letters, new_used = larger
    for word in range(used[WORDS]):
        if counts[word] > least:
            start, stop = starts[word], starts[word + 1]
            tag = tag_of(letters, start, stop)
            slot = slot_of(tags, slots, new_starts, new_letters, tag, letters, start, stop)
            new = add_word(tags, slots, new_starts, new_letters, new_used, slot, tag, letters, start, stop)
            moved[new] = counts[word]
