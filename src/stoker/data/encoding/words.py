"""A compiled table of words: each distinct word once, found by its code points.

Encoding keeps the ids of the words seen; learning keeps how often they were seen. Words are compared letter by
letter, never by their hash alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled

_MULTIPLIER = np.uint64(0x9FB21C651E98DF25)
_SEED = np.uint64(0x243F6A8885A308D3)
WORDS, LETTERS = 0, 1


class WordTable(NamedTuple):
    """Words in the order in which they were first seen, and an open hash table of a power of two slots."""

    tags: npt.NDArray[np.uint64]
    """Hash of the word in each slot, 0 where it is free: [slots]."""
    slots: npt.NDArray[np.int32]
    """Number of the word in each slot: [slots]."""
    starts: npt.NDArray[np.int64]
    """Where each word's letters begin: [most words + 1]."""
    letters: npt.NDArray[np.uint32]
    """Code points of all words, one after another: [most letters]."""
    used: npt.NDArray[np.int64]
    """Words and letters in use: [2]."""


def word_table(bits: int, most_letters: int) -> WordTable:
    """An empty table of 2**bits slots, for half as many words."""
    return WordTable(
        tags=np.zeros(1 << bits, np.uint64),
        slots=np.zeros(1 << bits, np.int32),
        starts=np.zeros((1 << bits >> 1) + 1, np.int64),
        letters=np.empty(most_letters, np.uint32),
        used=np.zeros(2, np.int64),
    )


def codes_of(text: str) -> npt.NDArray[np.uint32]:
    """The code points of a text: uint32 [characters]."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32).copy()


@compiled
def tag_of(codes: Any, start: int, stop: int) -> Any:
    """A hash of `codes[start:stop]` that is never 0: uint64."""
    tag = _SEED
    for place in range(start, stop):
        tag = (tag ^ np.uint64(codes[place])) * _MULTIPLIER
    return tag ^ tag >> np.uint64(29) | np.uint64(1)


@compiled
def slot_of(tags: Any, slots: Any, starts: Any, letters: Any, tag: Any, codes: Any, start: int, stop: int) -> Any:
    """The slot that holds the word `codes[start:stop]`, or the free one where it would go.

    Here and below the arrays of a `WordTable` come one by one: compiled calls are fast with arrays, not tuples.
    """
    mask = np.int64(len(tags) - 1)
    slot = np.int64(tag >> np.uint64(17)) & mask
    length = stop - start
    while tags[slot] != np.uint64(0):
        if tags[slot] == tag:
            begin = starts[slots[slot]]
            if starts[slots[slot] + 1] - begin == length:
                place = 0
                while place < length and letters[begin + place] == codes[start + place]:
                    place += 1
                if place == length:
                    return slot
        slot = (slot + 1) & mask
    return slot


@compiled
def has_room(starts: Any, letters: Any, used: Any, more: int) -> Any:
    """Whether a word of `more` letters may be added."""
    return used[WORDS] + 1 < len(starts) and used[LETTERS] + more <= len(letters)


@compiled
def add_word(
    tags: Any,
    slots: Any,
    starts: Any,
    letters: Any,
    used: Any,
    slot: int,
    tag: Any,
    codes: Any,
    start: int,
    stop: int,
) -> Any:
    """Put the word `codes[start:stop]` into its free slot; there must be room. Returns its number."""
    word, place = used[WORDS], used[LETTERS]
    tags[slot], slots[slot] = tag, word
    for letter in range(start, stop):
        letters[place + letter - start] = codes[letter]
    used[WORDS], used[LETTERS] = word + 1, place + stop - start
    starts[word + 1] = place + stop - start
    return word


@compiled
def number_of(tags: Any, slots: Any, starts: Any, letters: Any, used: Any, codes: Any) -> Any:
    """The number of the word `codes`, which is added where it is new; there must be room."""
    tag = tag_of(codes, 0, len(codes))
    slot = slot_of(tags, slots, starts, letters, tag, codes, 0, len(codes))
    if tags[slot] != np.uint64(0):
        return np.int64(slots[slot])
    return np.int64(add_word(tags, slots, starts, letters, used, slot, tag, codes, 0, len(codes)))


@compiled
def forget(tags: Any, slots: Any, starts: Any, letters: Any, used: Any, kept: Any) -> None:
    """Keep the first words alone: as many words and letters as `kept` says."""
    tags[:] = 0
    used[WORDS], used[LETTERS] = kept[WORDS], kept[LETTERS]
    for word in range(kept[WORDS]):
        start, stop = starts[word], starts[word + 1]
        tag = tag_of(letters, start, stop)
        slot = slot_of(tags, slots, starts, letters, tag, letters, start, stop)
        tags[slot], slots[slot] = tag, word
