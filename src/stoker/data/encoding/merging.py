"""The merges of a byte-level BPE as a table, and their compiled application to one word.

Applied as defined by Sennrich et al. (2016): of all neighbouring pairs that a merge exists for, the one that was
learnt first is merged, the leftmost where it stands several times; until there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled

NO_RANK = np.int64(1 << 62)
LONG_WORD = 192
"""From this many bytes on, a heap finds the next merge; below, looking at every pair is faster."""
_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class MergeTable(NamedTuple):
    """Merges, found by their pair: of two bytes directly, of others in an open hash table."""

    keys: npt.NDArray[np.uint64]
    """Left id in the upper half, right id in the lower; all ones where a slot is free: [a power of two]."""
    merges: npt.NDArray[np.int64]
    """Rank in the upper half, id of the merged token in the lower: [slots]."""
    byte_ids: npt.NDArray[np.int64]
    """Id of each byte: [256]."""
    byte_merges: npt.NDArray[np.int64]
    """As `merges`, of each pair of bytes, `NO_RANK` without one: [65536]."""


def merge_table(merges: Sequence[tuple[int, int, int]], byte_ids: Mapping[int, int]) -> MergeTable:
    """The table of merges (left id, right id, merged id) in the order in which they were learnt."""
    slots = 1 << max(10, (2 * len(merges)).bit_length())
    pairs = np.asarray(merges, np.int64).reshape(-1, 3)
    bytes_in_order = np.asarray([byte_ids[byte] for byte in range(256)], np.int64)
    table = MergeTable(
        np.full(slots, _FREE), np.empty(slots, np.int64), bytes_in_order, np.empty(1 << 16, np.int64)
    )
    _fill(*table, pairs)
    return table


@compiled
def _fill(keys: Any, merges: Any, byte_ids: Any, byte_merges: Any, pairs: Any) -> None:
    for rank in range(len(pairs)):
        key = np.uint64(pairs[rank, 0]) << np.uint64(32) | np.uint64(pairs[rank, 1])
        slot = _slot(keys, key)
        keys[slot] = key  # a pair that is listed twice keeps its last rank, as in `tokenizers`
        merges[slot] = rank << 32 | pairs[rank, 2]
    for left in range(256):
        for right in range(256):
            byte_merges[left << 8 | right] = _merge_of(keys, merges, byte_ids[left], byte_ids[right])


@compiled
def _slot(keys: Any, key: Any) -> Any:
    """The slot that holds `key`, or the free one where it would go."""
    mask = np.uint64(len(keys) - 1)
    slot = key * _SPREAD
    slot = (slot ^ slot >> np.uint64(32)) & mask
    while keys[slot] != key and keys[slot] != _FREE:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@compiled
def _merge_of(keys: Any, merges: Any, left: int, right: int) -> Any:
    """Rank and id of the merge of two neighbours as one number, `NO_RANK` without one."""
    key = np.uint64(left) << np.uint64(32) | np.uint64(right)
    slot = _slot(keys, key)
    return merges[slot] if keys[slot] == key else NO_RANK


@compiled
def append_ids(
    codes: Any,
    start: int,
    stop: int,
    keys: Any,
    merges: Any,
    byte_ids: Any,
    byte_merges: Any,
    room: Any,
    out: Any,
    place: int,
) -> Any:
    """Write the ids of the word `codes[start:stop]` to `out` from `place` on; returns the place behind them.

    The arrays of a `MergeTable` come one by one: compiled calls are fast with arrays, not with tuples. `room` is
    working memory: int64 [2, `LONG_WORD`].
    """
    if 4 * (stop - start) < LONG_WORD:
        symbols, found = room[0], room[1]
    else:
        symbols, found = np.empty(4 * (stop - start), np.int64), np.empty(4 * (stop - start), np.int64)
    count = bytes_of(codes, start, stop, symbols)
    for number in range(count - 1):
        found[number] = byte_merges[symbols[number] << 8 | symbols[number + 1]]
    for number in range(count):
        symbols[number] = byte_ids[symbols[number]]
    if count < LONG_WORD:
        count = _merged(symbols, found, count, keys, merges)
    else:
        count = _merged_by_heap(symbols, found, count, keys, merges)
    for number in range(count):
        out[place + number] = symbols[number]
    return place + count


@compiled
def bytes_of(codes: Any, start: int, stop: int, symbols: Any) -> Any:
    """Write the UTF-8 bytes of some code points to `symbols`; returns their number."""
    count = 0
    for place in range(start, stop):
        code = np.int64(codes[place])
        if code < 0x80:
            symbols[count] = code
            count += 1
            continue
        more = 1 if code < 0x800 else 2 if code < 0x10000 else 3
        lead = 0xC0 if more == 1 else 0xE0 if more == 2 else 0xF0
        symbols[count] = lead | code >> 6 * more
        for number in range(1, more + 1):
            symbols[count + number] = 0x80 | (code >> 6 * (more - number)) & 0x3F
        count += more + 1
    return count


@compiled
def _merged(symbols: Any, found: Any, count: int, keys: Any, merges: Any) -> Any:
    """Merge in place, looking for the lowest rank every time; returns how many symbols are left.

    `found` are the merges of each symbol with the next: [count - 1].
    """
    while count > 1:
        best, lowest = 0, found[0]
        for number in range(1, count - 1):
            if found[number] < lowest:
                best, lowest = number, found[number]
        if lowest == NO_RANK:
            break
        symbols[best] = lowest & 0xFFFFFFFF
        for number in range(best + 1, count - 1):
            symbols[number] = symbols[number + 1]
        for number in range(best, count - 2):
            found[number] = found[number + 1]
        count -= 1
        if best > 0:
            found[best - 1] = _merge_of(keys, merges, symbols[best - 1], symbols[best])
        if best < count - 1:
            found[best] = _merge_of(keys, merges, symbols[best], symbols[best + 1])
    return count


@compiled
def _merged_by_heap(symbols: Any, found: Any, count: int, keys: Any, merges: Any) -> Any:
    """As `_merged`, in n log n: a heap of possible merges by rank and place, checked again when they come up."""
    after, before = np.arange(1, count + 1), np.arange(-1, count - 1)
    # Each merge puts at most two new candidates in, and there are fewer than `count` merges.
    ranks, places = np.empty(3 * count, np.int64), np.empty(3 * count, np.int64)
    waiting = 0
    for place in range(count - 1):
        if found[place] != NO_RANK:
            waiting = _push(ranks, places, waiting, found[place], place)
    while waiting:
        merge, place = ranks[0], places[0]
        waiting = _pop(ranks, places, waiting)
        right = after[place]
        if symbols[place] < 0 or right >= count or _merge_of(keys, merges, symbols[place], symbols[right]) != merge:
            continue
        symbols[place], symbols[right] = merge & 0xFFFFFFFF, -1
        after[place] = after[right]
        if after[place] < count:
            before[after[place]] = place
            merge = _merge_of(keys, merges, symbols[place], symbols[after[place]])
            if merge != NO_RANK:
                waiting = _push(ranks, places, waiting, merge, place)
        if before[place] >= 0:
            merge = _merge_of(keys, merges, symbols[before[place]], symbols[place])
            if merge != NO_RANK:
                waiting = _push(ranks, places, waiting, merge, before[place])
    left = 0
    for place in range(count):
        if symbols[place] >= 0:
            symbols[left] = symbols[place]
            left += 1
    return left


@compiled
def _push(ranks: Any, places: Any, size: int, rank: int, place: int) -> Any:
    """Put (rank, place) into a binary heap, the lowest first; returns its new size."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if ranks[parent] < rank or (ranks[parent] == rank and places[parent] <= place):
            break
        ranks[child], places[child] = ranks[parent], places[parent]
        child = parent
    ranks[child], places[child] = rank, place
    return size + 1


@compiled
def _pop(ranks: Any, places: Any, size: int) -> Any:
    """Take the lowest out of the heap; returns its new size."""
    size -= 1
    rank, place = ranks[size], places[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            ranks[other] < ranks[child] or (ranks[other] == ranks[child] and places[other] < places[child])
        ):
            child = other
        if ranks[child] > rank or (ranks[child] == rank and places[child] >= place):
            break
        ranks[parent], places[parent] = ranks[child], places[child]
        parent = child
    ranks[parent], places[parent] = rank, place
    return size
