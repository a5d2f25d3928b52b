"""Passages of any extent that stand word for word elsewhere, as a suffix array would find them (Lee et al. 2022).

Of two equal stretches of `length` bytes the later one goes. They are found by their minimizers (Roberts et al.
2004): of all runs of half that length in a stretch, the one of the lowest hash. Equal stretches have equal
minimizers at equal places, so that runs with the same hash are all that must be compared, byte by byte. A minimizer
comes about once in a quarter of `length`: that is what is sorted, and not every position of the text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stoker.data.deduplication.duplicates import Integers
from stoker.data.deduplication.edits import Edits, edits_of
from stoker.data.deduplication.keyed_file import KeyedFile
from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, Utf8, mixed


def repeated_substrings(documents: Integers, text_of: Callable[[int], Utf8], length: int, folder: Path) -> Edits:
    """Cut out every byte of a stretch of `length` bytes that stands before in the same or an earlier document.

    `documents` are in the order in which one is earlier. A span gives way at its ends to whole characters, and to
    whole words of ASCII letters and digits. `folder` holds a copy of the texts meanwhile.
    """
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        keyed = KeyedFile(folder)
        starts = np.zeros(len(documents) + 1, np.int64)
        for place, document in enumerate(documents.tolist()):
            text = text_of(document)
            file.write(text.tobytes())
            keys, positions = minimizers(text, length)
            keyed.add(keys, positions + starts[place])
            starts[place + 1] = starts[place] + len(text)
        file.flush()
        if not starts[-1]:
            none = np.empty(0, np.int64)
            return edits_of("repeated_substrings", none, none, none, text_of)
        whole = np.asarray(np.memmap(file.name, np.uint8, mode="r"))
        found = [np.empty((0, 2), np.int64)]
        for keys, positions in keyed.parts():
            found.append(_repeated(whole, starts, keys, positions, length))
        spans = _merged(np.concatenate(found), starts)
        spans = _at_whole_words(whole, spans, starts)
        owner = np.searchsorted(starts, spans[:, 0], side="right") - 1
        first = starts[owner]
        return edits_of("repeated_substrings", documents[owner], spans[:, 0] - first, spans[:, 1] - first, text_of)


def minimizers(text: Utf8, length: int) -> tuple[Hashes, Integers]:
    """(hash, position) of the minimizers of all stretches of `length` bytes of a text, each once, in order."""
    found: tuple[Hashes, Integers] = _minimizers(text, length // 2, length - length // 2 + 1)
    return found


@compiled
def _minimizers(text: Any, size: int, window: int) -> Any:
    count = text.size - size + 1  # runs of `size` bytes
    if count < window:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    base = np.uint64(0xD1342543DE82EF95)
    leaving = np.uint64(1)
    for _ in range(size):
        leaving *= base
    hashes = np.empty(count, np.uint64)
    rolling = np.uint64(0)
    for i in range(text.size):
        rolling = rolling * base + np.uint64(text[i]) + np.uint64(1)
        if i >= size:
            rolling -= (np.uint64(text[i - size]) + np.uint64(1)) * leaving
        if i >= size - 1:
            hashes[i - size + 1] = mixed(rolling)
    places = np.empty(count, np.int64)
    number, lowest = 0, -1
    for last in range(window - 1, count):
        first = last - window + 1
        if lowest < first:
            lowest = first
            for i in range(first + 1, last + 1):
                if hashes[i] < hashes[lowest]:
                    lowest = i
        elif hashes[last] < hashes[lowest]:
            lowest = last
        if number == 0 or places[number - 1] != lowest:
            places[number] = lowest
            number += 1
    places = places[:number].copy()
    return hashes[places], places


@compiled
def _repeated(text: Any, starts: Any, keys: Any, positions: Any, length: int) -> Any:
    """Spans of stretches that stand before, from minimizers ordered by key and position: [spans, 2]."""
    size = length // 2
    before, after = length - size, length  # how far a stretch may reach from its minimizer
    spans, count = np.empty((16, 2), np.int64), 0
    contexts = np.empty(positions.size, np.int64)  # of the key at hand: places whose surroundings are new
    known = 0
    for i in range(positions.size):
        if i == 0 or keys[i] != keys[i - 1]:
            known = 0
        here = positions[i]
        document = np.searchsorted(starts, here, side="right") - 1
        left_room, right_room = min(before, here - starts[document]), min(after, starts[document + 1] - here)
        new = True
        for j in range(known):
            there = contexts[j]
            other = np.searchsorted(starts, there, side="right") - 1
            left_limit = min(left_room, there - starts[other])
            right_limit = min(right_room, starts[other + 1] - there)
            right = 0
            while right < right_limit and text[here + right] == text[there + right]:
                right += 1
            if right < size:
                continue
            left = 0
            while left < left_limit and text[here - left - 1] == text[there - left - 1]:
                left += 1
            if left + right >= length:
                if count == spans.shape[0]:
                    spans = np.concatenate((spans, np.empty((count, 2), np.int64)))
                spans[count, 0], spans[count, 1] = here - left, here + right
                count += 1
            if left == left_room and right == right_room:
                new = False  # every stretch around this minimizer stands there too
                break
        if new:
            contexts[known] = here
            known += 1
    return spans[:count]


def _merged(spans: Integers, starts: Integers) -> Integers:
    """Overlapping and touching spans of one document as one."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1]) if len(spans) else spans[:, 1]
    inside = spans[1:, 0] <= reach[:-1]
    inside &= np.searchsorted(starts, spans[1:, 0], side="right") == np.searchsorted(
        starts, reach[:-1], side="left"
    )
    first = np.append(True, ~inside)[: len(spans)]
    last = np.append(~inside, True)[: len(spans)]
    return np.stack([spans[first, 0], reach[last]], axis=1)


def _at_whole_words(text: Utf8, spans: Integers, starts: Integers) -> Integers:
    """Spans without the parts of characters and of words at their ends, and without those that vanish so."""
    kept = []
    edges = set(starts.tolist())
    for start, stop in spans.tolist():
        while start < stop and start not in edges and _splits(int(text[start - 1]), int(text[start])):
            start += 1
        while stop > start and stop not in edges and _splits(int(text[stop - 1]), int(text[stop])):
            stop -= 1
        inside = start not in edges and stop not in edges
        if start < stop and inside and text[start] < 0x80 and _splits(int(text[start - 1]), int(text[stop])):
            start += 1  # what stood between two words keeps them apart
        if start < stop:
            kept.append((start, stop))
    return np.asarray(kept, np.int64).reshape(-1, 2)


def _splits(left: int, right: int) -> bool:
    """Whether a cut between two bytes would fall into a character or an ASCII word."""
    return right & 0xC0 == 0x80 or (chr(left).isalnum() and chr(right).isalnum() and left < 0x80 and right < 0x80)
