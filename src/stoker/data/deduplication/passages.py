"""Lines and paragraphs that repeat others: found by 64-bit hashes of their tokens in normal form.

Of each passage the first `copies` stay, in the order in which the documents are given; what comes after is removed.
Passages that differ only in case, width, script, spacing or punctuation are the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication.duplicates import Integers
from stoker.data.deduplication.edits import Edits, edits_of
from stoker.data.deduplication.keyed_file import KeyedFile
from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, Utf8, mixed, tokenize
from stoker.data.normal_form import KIND_SHIFT, SKIP, WORD, normal_form

_BATCH = 1 << 12
_LINE_FEED = 0x0A


def repeated_passages(
    documents: Integers,
    text_of: Callable[[int], Utf8],
    unit: Literal["lines", "paragraphs"],
    copies: int,
    characters: int,
    folder: Path,
) -> Edits:
    """Cut out lines, or paragraphs between blank lines, that stand in `copies` places before.

    Those of fewer than `characters` stay. `documents` are in the order in which copies count. `folder` holds
    temporary files.
    """
    keyed = KeyedFile(folder)
    counts = np.zeros(len(documents), np.int64)
    total = 0
    for place, document in enumerate(documents.tolist()):
        keys, _ = passages(text_of(document), unit == "paragraphs", characters)
        keyed.add(keys, np.arange(total, total + len(keys)))
        counts[place] = len(keys)
        total += len(keys)
    ends = np.cumsum(counts)
    removed = np.sort(np.concatenate([np.empty(0, np.int64), *_later_copies(keyed, copies)]))
    owner = np.searchsorted(ends, removed, side="right")
    spans = np.empty((len(removed), 2), np.int64)
    for place in np.unique(owner).tolist():
        own = owner == place if len(removed) < _BATCH else slice(*np.searchsorted(owner, [place, place + 1]))
        _, found = passages(text_of(int(documents[place])), unit == "paragraphs", characters)
        spans[own] = found[removed[own] - (ends[place] - counts[place])]
    return edits_of(f"repeated_{unit}", documents[owner], spans[:, 0], spans[:, 1], text_of)


def passages(text: Utf8, paragraphs: bool, characters: int, digits: bool = True) -> tuple[Hashes, Integers]:
    """(key of each passage of at least `characters` that has a token, its bytes with the line ends behind it).

    Without `digits`, passages that differ in these alone have one key, and a digit is no token.
    """
    form = normal_form(one_script=True)
    entries, expansions = (form.entries, form.expansions) if digits else _without_digits()
    found: tuple[Hashes, Integers] = _passages(text, paragraphs, characters, entries, form.starts, expansions)
    return found


@lru_cache(maxsize=1)
def _without_digits() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Entries and expansions of the normal form in which digits are skipped."""
    form = normal_form(one_script=True)
    digits = [WORD << KIND_SHIFT | ord(digit) for digit in "0123456789"]
    skipped = np.uint32(SKIP << KIND_SHIFT)
    entries, expansions = (np.where(np.isin(own, digits), skipped, own) for own in (form.entries, form.expansions))
    return entries, expansions


def _later_copies(keyed: KeyedFile, copies: int) -> Iterator[Integers]:
    for keys, values in keyed.parts():
        first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
        since = np.arange(len(keys)) - np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))
        yield values[since >= copies]


@compiled
def _passages(text: Any, paragraphs: bool, characters: int, entries: Any, starts: Any, expansions: Any) -> Any:
    room = 8
    keys, spans, count = np.empty(room, np.uint64), np.empty((room, 2), np.int64), 0
    tokens = np.empty(text.size + 8, np.uint64)
    start = 0
    while start < text.size:
        stop = _line_end(text, start)
        while paragraphs and stop < text.size and not _is_blank(text, stop):
            stop = _line_end(text, stop)
        while stop < text.size and _is_blank(text, stop):
            stop = _line_end(text, stop)
        own = text[start:stop]
        length = 0
        for byte in own:
            length += byte & 0xC0 != 0x80 and byte != _LINE_FEED
        number = -1
        while number < 0:
            number = tokenize(own, entries, starts, expansions, tokens)
            if number < 0:
                tokens = np.empty(2 * tokens.size, np.uint64)
        if length >= characters and number:
            key = np.uint64(number)
            for i in range(number):
                key = mixed(key * np.uint64(0x9E3779B97F4A7C15) + tokens[i])
            if count == room:
                keys = np.concatenate((keys, np.empty(room, np.uint64)))
                spans = np.concatenate((spans, np.empty((room, 2), np.int64)))
                room *= 2
            keys[count], spans[count, 0], spans[count, 1] = key, start, stop
            count += 1
        start = stop
    return keys[:count], spans[:count]


@compiled
def _line_end(text: Any, start: int) -> int:
    while start < text.size and text[start] != _LINE_FEED:
        start += 1
    return int(min(start + 1, text.size))


@compiled
def _is_blank(text: Any, start: int) -> bool:
    """Whether the line that begins at `start` has nothing but spaces and tabs."""
    while start < text.size and text[start] != _LINE_FEED:
        if text[start] != 0x20 and text[start] != 0x09:
            return False
        start += 1
    return True
