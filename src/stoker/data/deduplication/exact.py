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
    first = np.ones(len(order), bool)
    first[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    head = order[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    removed, kept = order[~first], head[~first]
    place = np.argsort(removed)
    return Duplicates(removed[place], kept[place], np.ones(len(removed)))
