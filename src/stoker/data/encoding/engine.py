"""Text to ids: words are split off, and their ids remembered, so that most text is looked up, not merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.data.encoding.merging import LONG_WORD, MergeTable, append_ids
from stoker.data.encoding.splitting import TRIED, SplitTable, classify, end_of_word
from stoker.data.encoding.words import (
    WORDS,
    WordTable,
    add_word,
    codes_of,
    forget,
    has_room,
    number_of,
    slot_of,
    tag_of,
    word_table,
)
from stoker.data.kernels import compiled

BLOCK = 1 << 16
"""Characters that are worked on at once, unless a single word is longer."""
_REMEMBERED_BITS = 19
_LONGEST_REMEMBERED = 64
"""Longer words hardly come twice."""
_LETTERS_OF_WORD = 12
"""For which there is room on average; where words are longer, fewer are remembered."""

Ids = npt.NDArray[np.uint32]


class Remembered(NamedTuple):
    """Ids of the words seen."""

    words: WordTable
    starts: npt.NDArray[np.int64]
    """Where each word's ids begin: [most words + 1]."""
    ids: Ids
    """Ids of all words, one after another."""
    kept: npt.NDArray[np.int64]
    """Words and letters that stay when the table is full and the others are forgotten: [2]."""


class Engine:
    """Encodes text by a split pattern and a table of merges."""

    def __init__(self, split: SplitTable, merges: MergeTable, whole_words: Mapping[str, int] | None = None) -> None:
        """`whole_words` are words that are not merged: each is the one token that it is given with."""
        self._split, self._merges = split, merges
        self._remembered = _remembering(whole_words or {})

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text: uint32 [tokens]. Memory beyond texts and ids grows with the longest word alone."""
        parts: list[list[Ids]] = [[] for _ in texts]
        waiting: list[int] = []
        size = 0
        for number, text in enumerate(texts):
            if len(text) > BLOCK:
                parts[number] = list(self._encode_long(text))
                continue
            if size + len(text) > BLOCK:
                self._encode_short(texts, waiting, parts)
                waiting, size = [], 0
            waiting.append(number)
            size += len(text)
        self._encode_short(texts, waiting, parts)
        return [part[0] if len(part) == 1 else np.concatenate([np.empty(0, np.uint32), *part]) for part in parts]

    def _encode_short(self, texts: Sequence[str], waiting: list[int], parts: list[list[Ids]]) -> None:
        if waiting:
            chosen = [texts[number] for number in waiting]
            ids, stops, _ = self._encode_block("".join(chosen), [len(text) for text in chosen], last_is_open=False)
            for number, part in zip(waiting, np.split(ids, stops[:-1]), strict=True):
                parts[number] = [part]

    def _encode_long(self, text: str) -> Iterator[Ids]:
        """The ids of a text, block by block; a word that more text might change begins the next block."""
        start, size = 0, BLOCK
        while start < len(text):
            block = text[start : start + size]
            ids, _, done = self._encode_block(block, [len(block)], last_is_open=start + size < len(text))
            if done == 0:  # one word, and longer
                size *= 2
                continue
            yield ids
            start, size = start + done, BLOCK

    def _encode_block(
        self, text: str, lengths: list[int], last_is_open: bool
    ) -> tuple[Ids, npt.NDArray[np.int64], int]:
        """Ids of the texts that make up `text`, where those of each end, and how many characters they stand for."""
        ends = np.cumsum(np.asarray(lengths, np.int64))
        stops = np.empty(len(lengths), np.int64)
        codes = codes_of(text)
        out = np.empty(4 * len(codes), np.uint32)
        done = _encode(codes, ends, last_is_open, self._split, self._merges, self._remembered, out, stops)
        return out[: stops[-1]].copy(), stops, done


def _remembering(whole_words: Mapping[str, int]) -> Remembered:
    bits = max(_REMEMBERED_BITS, (4 * len(whole_words)).bit_length())
    letters = (1 << bits >> 1) * _LETTERS_OF_WORD
    words = word_table(bits, letters)
    remembered = Remembered(
        words,
        starts=np.zeros(len(words.starts), np.int64),
        ids=np.empty(letters, np.uint32),
        kept=np.zeros(2, np.int64),
    )
    for number, (text, token) in enumerate(whole_words.items()):
        number_of(*words, codes_of(text))
        remembered.ids[number], remembered.starts[number + 1] = token, number + 1
    remembered.kept[:] = words.used
    return remembered


@compiled
def _encode(
    codes: Any, ends: Any, last_is_open: bool, split: Any, merges: Any, remembered: Any, out: Any, stops: Any
) -> int:
    """Write the ids of the texts that end at `ends` to `out`, and to `stops` where those of each text end.

    Returns how many code points that took: all, or where the last text is open up to the first word that more text
    might change.
    """
    classes, starters, alternatives, repeats = split
    keys, pairs, byte_ids, byte_merges = merges
    tags, slots, word_starts, letters, _ = remembered.words
    kinds, tried = classify(codes, classes), np.empty((TRIED, 2), np.int64)
    room = np.empty((2, LONG_WORD), np.int64)
    starts, ids = remembered.starts, remembered.ids
    place, written = 0, 0
    for number in range(len(ends)):
        is_open = last_is_open and number == len(ends) - 1
        while place < ends[number]:
            stop, unsure = end_of_word(kinds, place, ends[number], starters, alternatives, repeats, tried)
            if unsure and is_open:
                break
            tag = tag_of(codes, place, stop)
            slot = slot_of(tags, slots, word_starts, letters, tag, codes, place, stop)
            if tags[slot] != np.uint64(0):
                for source in range(starts[slots[slot]], starts[slots[slot] + 1]):
                    out[written] = ids[source]
                    written += 1
            else:
                before = written
                written = append_ids(codes, place, stop, keys, pairs, byte_ids, byte_merges, room, out, before)
                if stop - place <= _LONGEST_REMEMBERED:
                    _remember(codes, place, stop, tag, slot, remembered, out[before:written])
            place = stop
        stops[number] = written
    return place


@compiled
def _remember(codes: Any, place: int, stop: int, tag: Any, slot: int, remembered: Any, new: Any) -> None:
    """Keep the ids `new` of the word `codes[place:stop]`, whose free slot is given."""
    tags, slots, word_starts, letters, used = remembered.words
    begin = remembered.starts[used[WORDS]]
    if not has_room(word_starts, letters, used, stop - place) or begin + len(new) > len(remembered.ids):
        forget(tags, slots, word_starts, letters, used, remembered.kept)
        slot = slot_of(tags, slots, word_starts, letters, tag, codes, place, stop)
        begin = remembered.starts[used[WORDS]]
    word = add_word(tags, slots, word_starts, letters, used, slot, tag, codes, place, stop)
    remembered.ids[begin : begin + len(new)] = new
    remembered.starts[word + 1] = begin + len(new)
