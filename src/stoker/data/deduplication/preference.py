"""Which of several documents that repeat one another is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication.duplicates import Integers
from stoker.data.deduplication.exact import Digests
from stoker.recipe import Deduplication


def ranks(
    settings: Deduplication, digests: Digests, characters: Integers, quality: npt.NDArray[np.float64] | None
) -> Integers:
    """The rank of each document, 0 for the one that is preferred to all others: int64 [documents].

    `earliest` is the order in which they are given. `longest` and `best` do not depend on it: those of equal length
    or quality are ordered by their SHA-256. `quality` [documents] is wanted for `best`; NaN is the worst.
    """
    count = len(digests)
    if settings.keep == "earliest":
        return np.arange(count)
    if settings.keep == "longest":
        value = -characters.astype(np.float64)
    else:
        assert quality is not None
        value = -np.where(np.isnan(quality), -np.inf, quality)
    words = np.ascontiguousarray(digests).view(">u8").reshape(count, 4)
    order = np.lexsort((np.arange(count), *words.T[::-1], value))
    placed = np.empty(count, np.int64)
    placed[order] = np.arange(count)
    return placed
