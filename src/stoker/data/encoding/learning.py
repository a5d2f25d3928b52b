"""Merges of a byte-level BPE, learnt from counted words.

As defined by Sennrich et al. (2016): the pair of neighbours that is most frequent over all words becomes a token,
again and again. Of equally frequent pairs the one with the lower left id is taken, then the one with the lower
right id, which is the order of `tokenizers`; so is what is counted where tokens overlap ("aaa" holds two pairs),
and the merges are the same.

Every symbol knows its neighbours, every pair where it occurs, and a heap which pair may be the most frequent.
Counts in the heap only ever turn out too high, so they are checked when a pair comes up.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.data.encoding.byte_letters import byte_of_letter, letter_of_byte
from stoker.data.encoding.counting import WordCounts
from stoker.data.encoding.merging import bytes_of
from stoker.data.encoding.words import LETTERS, WORDS, WordTable, codes_of, number_of, word_table
from stoker.data.kernels import compiled

_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_LETTERS_OF_TOKEN = 16
"""For which there is room on average at first."""
_ROOM = 1 << 17
"""For pairs, and for their occurrences beside the first, at first."""
PAIRS, PLACES, WAITING, MERGES = 0, 1, 2, 3
"""What is counted in the state: pairs, their occurrences, pairs in the heap, merges."""


@dataclass(frozen=True)
class Learnt:
    """A vocabulary and its merges."""

    tokens: tuple[str, ...]
    """By id, in the letters of byte-level vocabularies."""
    merges: npt.NDArray[np.int64]
    """Left id, right id and merged id, in the order in which they were learnt: [merges, 3]."""


class Symbols(NamedTuple):
    """All words, symbol by symbol; a symbol that was merged into the one before it is -1."""

    ids: npt.NDArray[np.int32]
    before: npt.NDArray[np.int32]
    """Place of the symbol before in the same word, or -1."""
    after: npt.NDArray[np.int32]
    words: npt.NDArray[np.int32]
    """Number of the word."""
    counts: npt.NDArray[np.int64]
    """How often each word occurs."""


class Pairs(NamedTuple):
    """Pairs of neighbours, numbered, in an open hash table; where each occurs, and the heap over their counts."""

    slots: npt.NDArray[np.int32]
    """Number of the pair in each slot, -1 where it is free: [a power of two]."""
    keys: npt.NDArray[np.uint64]
    """Left id in the upper half, right id in the lower: [room for pairs]."""
    counts: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int32]
    """The occurrence of each pair that was found last, or -1."""
    lengths: npt.NDArray[np.int32]
    """Occurrences that were found of each pair, merged ones included."""
    marks: npt.NDArray[np.int32]
    """The merge by which each pair was found last."""
    places: npt.NDArray[np.int32]
    """Of each occurrence, the place of its left symbol: [room for occurrences]."""
    links: npt.NDArray[np.int32]
    """The occurrence of the same pair that was found before, or -1."""
    heap: npt.NDArray[np.int32]
    """Pairs by count, the most frequent first: [room for pairs]."""
    heap_counts: npt.NDArray[np.int64]


def learn_merges(counted: WordCounts, specials: Sequence[str], size: int, least: int) -> Learnt:
    """A vocabulary of at most `size` entries: special tokens, the letters of the 256 bytes, and what is merged.

    Pairs that occur fewer than `least` times are not merged, so the vocabulary may be smaller.
    """
    first = [*specials, *sorted(byte_of_letter())]
    room = max(size, len(first))
    tokens = word_table(room.bit_length() + 2, room * _LETTERS_OF_TOKEN + sum(map(len, first)))
    place = {text: number_of(*tokens, codes_of(text)) for text in first}
    ids_of_bytes = np.asarray([place[letter] for letter in letter_of_byte()], np.int64)
    symbols = _symbols(counted, ids_of_bytes)
    pairs = _tables(_ROOM, len(symbols.ids) + _ROOM)
    merges = np.empty((size, 3), np.int64)
    state = np.zeros(4, np.int64)
    _find_pairs(symbols, pairs, state)
    while not _learn(symbols, pairs, state, tokens, merges, size, least):
        pairs = _with_room(pairs, state, int(tokens.used[WORDS]))
        tokens = tokens._replace(letters=np.concatenate([tokens.letters, np.empty_like(tokens.letters)]))
        merges = np.concatenate([merges, np.empty_like(merges)])
    return Learnt(_written(tokens), merges[: state[MERGES]].copy())


def _written(tokens: WordTable) -> tuple[str, ...]:
    text = tokens.letters[: tokens.starts[tokens.used[WORDS]]].tobytes().decode("utf-32-le")
    ends = tokens.starts[: tokens.used[WORDS] + 1].tolist()
    return tuple(text[start:stop] for start, stop in itertools.pairwise(ends))


def _symbols(counted: WordCounts, ids_of_bytes: npt.NDArray[np.int64]) -> Symbols:
    starts, letters = counted.words.starts[: len(counted) + 1], counted.words.letters
    codes = letters[: starts[-1]]
    size = len(codes) + sum(int((codes >= first).sum()) for first in (0x80, 0x800, 0x10000))
    ids, before, after, words = np.empty((4, size), np.int32)
    made = Symbols(ids, before, after, words, counted.counts)
    _write_symbols(starts, letters, ids_of_bytes, made)
    return made


def _tables(pairs: int, places: int) -> Pairs:
    return Pairs(
        slots=np.full(2 * pairs, -1, np.int32),
        keys=np.empty(pairs, np.uint64),
        counts=np.zeros(pairs, np.int64),
        heads=np.full(pairs, -1, np.int32),
        lengths=np.zeros(pairs, np.int32),
        marks=np.full(pairs, -1, np.int32),
        places=np.empty(places, np.int32),
        links=np.empty(places, np.int32),
        heap=np.empty(pairs, np.int32),
        heap_counts=np.empty(pairs, np.int64),
    )


def _with_room(pairs: Pairs, state: npt.NDArray[np.int64], tokens: int) -> Pairs:
    """The same pairs in tables that have room for what the next merge may find."""
    more = 2 * int(pairs.lengths[pairs.heap[0]])
    room, places = len(pairs.keys), len(pairs.places)
    while max(state[PAIRS], state[WAITING]) + _new_pairs(more, tokens) > room:
        room *= 2
    while state[PLACES] + more > places:
        places += places // 2
    larger = _tables(room, places)
    for name in Pairs._fields[1:]:
        old = getattr(pairs, name)
        getattr(larger, name)[: len(old)] = old
    _place_pairs(larger.slots, larger.keys, int(state[PAIRS]))
    return larger


@compiled
def _new_pairs(places: int, tokens: int) -> Any:
    """The most pairs that so many occurrences can be: each has the new token on its left or right."""
    return min(places, 2 * tokens + 2)


@compiled
def _write_symbols(starts: Any, letters: Any, ids_of_bytes: Any, symbols: Any) -> None:
    ids, before, after, words, _ = symbols
    room = np.empty(4 * np.max(np.diff(starts)) if len(starts) > 1 else 0, np.int64)
    place = 0
    for word in range(len(starts) - 1):
        count = bytes_of(letters, starts[word], starts[word + 1], room)
        for number in range(count):
            ids[place + number] = ids_of_bytes[room[number]]
            before[place + number] = place + number - 1 if number else -1
            after[place + number] = place + number + 1 if number + 1 < count else -1
            words[place + number] = word
        place += count


@compiled
def _slot(slots: Any, keys: Any, key: Any) -> Any:
    """The slot that holds the pair of that key, or the free one where it would go."""
    mask = np.uint64(len(slots) - 1)
    slot = key * _SPREAD
    slot = (slot ^ slot >> np.uint64(32)) & mask
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def _place_pairs(slots: Any, keys: Any, pairs: int) -> None:
    for pair in range(pairs):
        slots[_slot(slots, keys, keys[pair])] = pair


@compiled
def _key(left: int, right: int) -> Any:
    return np.uint64(left) << np.uint64(32) | np.uint64(right)


@compiled
def _find_pairs(symbols: Any, pairs: Any, state: Any) -> None:
    """Count the pairs of all words, and put them into the heap."""
    ids, _, after, words, word_counts = symbols
    slots, keys, counts, heads, lengths, _, places, links, heap, heap_counts = pairs
    for place in range(len(ids)):
        if after[place] >= 0:
            _add(
                slots, keys, counts, heads, lengths, places, links, state,
                _key(ids[place], ids[after[place]]), word_counts[words[place]], place,
            )  # fmt: skip
    for pair in range(state[PAIRS]):
        _push(heap, heap_counts, keys, state, pair, counts[pair])


@compiled
def _add(
    slots: Any, keys: Any, counts: Any, heads: Any, lengths: Any, places: Any, links: Any, state: Any,
    key: Any, count: int, place: int,
) -> Any:  # fmt: skip
    """Note that a pair occurs `count` times at a place; returns its number."""
    slot = _slot(slots, keys, key)
    if slots[slot] < 0:
        slots[slot] = state[PAIRS]
        keys[state[PAIRS]] = key
        state[PAIRS] += 1
    pair = slots[slot]
    counts[pair] += count
    lengths[pair] += 1
    places[state[PLACES]], links[state[PLACES]] = place, heads[pair]
    heads[pair] = state[PLACES]
    state[PLACES] += 1
    return pair


@compiled
def _learn(symbols: Any, pairs: Any, state: Any, tokens: Any, merges: Any, size: int, least: int) -> Any:
    """Merge until the vocabulary has its size or nothing is frequent enough; False where room runs out before."""
    _, keys, counts, _, lengths, _, places, _, heap, heap_counts = pairs
    _, _, starts, letters, used = tokens
    while used[WORDS] < size and state[WAITING]:
        pair = heap[0]
        if heap_counts[0] != counts[pair]:
            _pop(heap, heap_counts, keys, state)
            if counts[pair] > 0:
                _push(heap, heap_counts, keys, state, pair, counts[pair])
            continue
        if counts[pair] < max(least, 1):
            break
        left, right = np.int64(keys[pair] >> np.uint64(32)), np.int64(keys[pair] & np.uint64(0xFFFFFFFF))
        more = 2 * lengths[pair]
        if (
            max(state[PAIRS], state[WAITING]) + _new_pairs(more, used[WORDS]) > len(keys)
            or state[PLACES] + more > len(places)
            or used[LETTERS] + starts[left + 1] - starts[left] + starts[right + 1] - starts[right] > len(letters)
            or state[MERGES] == len(merges)
        ):
            return False
        _pop(heap, heap_counts, keys, state)
        merged = _joined(tokens, left, right)
        merges[state[MERGES], 0], merges[state[MERGES], 1], merges[state[MERGES], 2] = left, right, merged
        _merge(symbols, pairs, state, pair, left, right, merged)
        counts[pair] = 0
        state[MERGES] += 1
    return True


@compiled
def _joined(tokens: Any, left: int, right: int) -> Any:
    """The id of the token of two: a new one, or that of an entry that is written alike."""
    tags, slots, starts, letters, used = tokens
    ahead, behind = letters[starts[left] : starts[left + 1]], letters[starts[right] : starts[right + 1]]
    return number_of(tags, slots, starts, letters, used, np.concatenate((ahead, behind)))


@compiled
def _merge(symbols: Any, pairs: Any, state: Any, pair: int, left: int, right: int, merged: int) -> None:
    """Merge a pair wherever it occurs, in each word from left to right, and count what its neighbours become."""
    ids, before, after, words, word_counts = symbols
    slots, keys, counts, heads, lengths, marks, places, links, heap, heap_counts = pairs
    where = np.empty(lengths[pair], np.int64)
    occurrence = heads[pair]
    for number in range(len(where)):
        where[number] = places[occurrence]
        occurrence = links[occurrence]
    if left == right:
        where.sort()
    touched = np.empty(2 * len(where), np.int64)
    size = 0
    for place in where:
        second = after[place]
        if ids[place] != left or second < 0 or ids[second] != right:
            continue
        count, behind, ahead = word_counts[words[place]], after[second], before[place]
        ids[place], ids[second], after[place] = merged, -1, behind
        if behind >= 0:
            before[behind] = place
            counts[slots[_slot(slots, keys, _key(right, ids[behind]))]] -= count
            key = _key(merged, ids[behind])
            found = _add(slots, keys, counts, heads, lengths, places, links, state, key, count, place)
            if marks[found] != state[MERGES]:
                marks[found], touched[size] = state[MERGES], found
                size += 1
        if ahead >= 0:
            counts[slots[_slot(slots, keys, _key(ids[ahead], left))]] -= count
            key = _key(ids[ahead], merged)
            found = _add(slots, keys, counts, heads, lengths, places, links, state, key, count, ahead)
            if marks[found] != state[MERGES]:
                marks[found], touched[size] = state[MERGES], found
                size += 1
    for found in touched[:size]:
        if counts[found] > 0:
            _push(heap, heap_counts, keys, state, found, counts[found])


@compiled
def _goes_before(count: int, key: Any, other: int, other_key: Any) -> Any:
    return count > other or (count == other and key < other_key)


@compiled
def _push(heap: Any, heap_counts: Any, keys: Any, state: Any, pair: int, count: int) -> None:
    """Put a pair into the heap."""
    child = state[WAITING]
    while child > 0:
        parent = (child - 1) >> 1
        if not _goes_before(count, keys[pair], heap_counts[parent], keys[heap[parent]]):
            break
        heap[child], heap_counts[child] = heap[parent], heap_counts[parent]
        child = parent
    heap[child], heap_counts[child] = pair, count
    state[WAITING] += 1


@compiled
def _pop(heap: Any, heap_counts: Any, keys: Any, state: Any) -> None:
    """Take the first pair out of the heap."""
    state[WAITING] -= 1
    size = state[WAITING]
    pair, count = heap[size], heap_counts[size]
    parent = 0
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        if child + 1 < size and _goes_before(
            heap_counts[child + 1], keys[heap[child + 1]], heap_counts[child], keys[heap[child]]
        ):
            child += 1
        if not _goes_before(heap_counts[child], keys[heap[child]], count, keys[pair]):
            break
        heap[parent], heap_counts[parent] = heap[child], heap_counts[child]
        parent = child
    heap[parent], heap_counts[parent] = pair, count
