"""Parts of an epoch's order of documents, without putting the others in order.

An epoch's documents are sorted by numbers drawn for them (`permutation`). Documents are dealt into bins by the
highest bits of their numbers, so the bins are in order, and the tokens of each say where it begins; only the bins
that are asked for are sorted. This is for a look at a few steps: over a whole epoch, sorting once is faster.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stoker.counter_random import draw_u64

Integers = npt.NDArray[np.int64]
_MOST_BITS = 14
_DOCUMENTS_OF_BIN = 64
"""On average and at least, where there are not the most bins."""
_AT_ONCE = 1 << 17
"""Documents whose numbers are drawn at once: what fits into the processor's cache."""


class OrderInParts:
    """The order that `permutation(key, len(lengths))` gives documents of these lengths in tokens, int64
    [documents]."""

    def __init__(self, key: int, lengths: Integers) -> None:
        self._key, self._lengths = key, lengths
        bits = min(_MOST_BITS, max(1, (len(lengths) // _DOCUMENTS_OF_BIN).bit_length()))
        self._bins = np.empty(len(lengths), np.uint16)
        tokens = np.zeros(1 << bits, np.int64)
        for first in range(0, len(lengths), _AT_ONCE):
            after = min(first + _AT_ONCE, len(lengths))
            numbers = draw_u64(key, np.arange(first, after, dtype=np.uint64))
            bins = (numbers >> np.uint64(64 - bits)).astype(np.uint16)
            self._bins[first:after] = bins
            # Sums in float64 are exact below 2^53 tokens.
            tokens += np.bincount(bins, lengths[first:after], minlength=len(tokens)).astype(np.int64)
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(tokens)])

    def around(self, begin: Integers, end: Integers) -> tuple[Integers, Integers]:
        """The documents of the stretches [begin, end) of the stream, none of them empty, and some beside them.

        Returns the documents in order, int64 [n], and where each begins in the stream, int64 [n + 1]: the last is
        the end of the last document. Between stretches, documents are left out, and only there.
        """
        first = np.searchsorted(self._starts, begin, side="right") - 1
        last = np.searchsorted(self._starts, end - 1, side="right") - 1
        edges = np.zeros(len(self._starts) + 1, np.int64)
        np.add.at(edges, first, 1)
        np.add.at(edges, last + 1, -1)
        asked = np.cumsum(edges)[: len(self._starts)] > 0
        documents = np.flatnonzero(asked[self._bins])
        numbers = draw_u64(self._key, documents.astype(np.uint64))
        documents = documents[np.argsort(numbers, kind="stable")]
        lengths = self._lengths[documents]
        inside = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        bins, places, counts = np.unique(self._bins[documents], return_index=True, return_counts=True)
        starts = inside[:-1] + np.repeat(self._starts[bins] - inside[places], counts)
        return documents, np.append(starts, starts[-1] + lengths[-1])
