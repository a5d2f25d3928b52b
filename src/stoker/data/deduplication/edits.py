"""Passages that are taken out of texts: which bytes of which documents, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from stoker.data.deduplication.duplicates import Integers
from stoker.data.minhash import Utf8


@dataclass(frozen=True)
class Edits:
    """Spans that are cut out of the UTF-8 of documents; whole characters, in order, none touching another."""

    reason: str
    """`host_furniture`, `repeated_paragraphs`, `repeated_lines` or `repeated_substrings`."""
    documents: Integers
    """The documents that are changed, ascending: [changed]."""
    ends: Integers
    """Where the spans of each end in `spans`: [changed]."""
    spans: Integers
    """First byte, and the one after the last: [spans, 2]."""
    characters: Integers
    """Characters that each document loses: [changed]."""

    def place(self, document: int) -> int | None:
        """Where `document` stands in `documents`; None where it is not changed."""
        place = int(np.searchsorted(self.documents, document))
        return place if place < len(self.documents) and self.documents[place] == document else None

    def applied(self, document: int, text: Utf8) -> Utf8:
        """What is left of a document's text."""
        place = self.place(document)
        if place is None:
            return text
        spans = self.spans[self.ends[place - 1] if place else 0 : self.ends[place]]
        starts, stops = np.append(0, spans[:, 1]), np.append(spans[:, 0], len(text))
        return np.concatenate([text[start:stop] for start, stop in zip(starts, stops, strict=True)])

    def lost(self, first: int, after: int) -> Integers:
        """Characters that each of the documents `first` to `after` (exclusive) loses: [after - first]."""
        begin, end = np.searchsorted(self.documents, [first, after])
        lost = np.zeros(after - first, np.int64)
        lost[self.documents[begin:end] - first] = self.characters[begin:end]
        return lost

    def removed_bytes(self) -> Integers:
        """Bytes that each changed document loses: [changed]."""
        sums = np.append(0, np.cumsum(self.spans[:, 1] - self.spans[:, 0]))
        removed: Integers = sums[self.ends] - sums[np.append(0, self.ends)[:-1]]
        return removed

    def write(self, stream: BinaryIO) -> None:
        """Append to an open file."""
        for array in (np.asarray(self.reason), self.documents, self.ends, self.spans, self.characters):
            np.save(stream, array)

    @classmethod
    def read(cls, stream: BinaryIO) -> Edits:
        """What `write` wrote next."""
        return cls(str(np.load(stream)), *(np.load(stream) for _ in range(4)))


def edits_of(
    reason: str, documents: Integers, starts: Integers, stops: Integers, text_of: Callable[[int], Utf8]
) -> Edits:
    """Edits from spans in any order, overlapping or touching ones too: one row for each of three arrays."""
    order = np.lexsort((starts, documents))
    documents, starts, stops = documents[order], starts[order], stops[order]
    kept: list[tuple[int, int, int]] = []
    for document, start, stop in zip(documents.tolist(), starts.tolist(), stops.tolist(), strict=True):
        if kept and kept[-1][0] == document and start <= kept[-1][2]:
            kept[-1] = (document, kept[-1][1], max(stop, kept[-1][2]))
        else:
            kept.append((document, start, stop))
    rows = np.asarray(kept, np.int64).reshape(-1, 3)
    changed, first = np.unique(rows[:, 0], return_index=True)
    ends = np.append(first[1:], len(rows)) if len(rows) else first
    characters = np.zeros(len(changed), np.int64)
    for place, document in enumerate(changed.tolist()):
        text = text_of(document)
        spans = rows[first[place] : ends[place], 1:]
        characters[place] = sum(np.count_nonzero(text[a:b] & 0xC0 != 0x80) for a, b in spans.tolist())
    return Edits(reason, changed, ends.astype(np.int64), rows[:, 1:].copy(), characters)
