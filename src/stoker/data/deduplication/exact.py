"""Documents with the very text of another, by their SHA-256."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication.duplicates import Duplicates, Integers

Digests = npt.NDArray[np.uint8]
"""SHA-256 of texts: uint8 [documents, 32]."""


def exact_duplicates(digests: Digests, ranks: Integers) -> Duplicates:
    """Documents whose digest another one of a lower rank has; each names the one of the lowest rank.

    `ranks` [documents] are different numbers: the lowest of those with one text stays.
    """
    if not len(digests):
        return Duplicates.of(())
    words = np.ascontiguousarray(digests).view(">u8")
    order = np.lexsort((ranks, *words.T))
    first = np.zeros(len(order), bool)
    first[0] = True
    for word in words.T:  # one at a time: the digests are most of what is in memory
        ordered = word[order]
        first[1:] |= ordered[1:] != ordered[:-1]
    heads = order[first]
    removed = order[~first]
    kept = heads[np.cumsum(first)[~first] - 1]
    place = np.argsort(removed)
    return Duplicates(removed[place], kept[place], np.ones(len(removed)))
