"""Compiled inner loops of the search for evaluation items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes

_SLACK = 2
"""A short item may be so many tokens longer or shorter in a document than in the evaluation set."""


class ShortItems(Protocol):
    """Short items as `found_short` needs them."""

    seed: int
    likeness: float
    tokens: Hashes
    """Of all items, one after another."""
    starts: npt.NDArray[np.int64]
    """Where the tokens of each item begin, and the end of all [items + 1]."""
    first: npt.NDArray[np.int64]
    """Where the occurrences of each seed begin in `own` and `offsets` [seeds]."""
    counts: npt.NDArray[np.int64]
    """How many occurrences of each seed are looked at [seeds]."""
    own: npt.NDArray[np.int32]
    """The item of each occurrence of a seed."""
    offsets: npt.NDArray[np.int32]
    """The token of that item at which it begins."""


def found_short(
    tokens: Hashes, seeds: npt.NDArray[np.int32], items: ShortItems, marked: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, float]]:
    """(item, likeness) of the short items in a document of `tokens`, whose tokens are `marked` in place.

    `seeds` holds the number of the seed that begins at each token, or -1 [tokens - seed + 1]. Likeness is the
    longest common subsequence of item and document near the seed, over the tokens of the item.
    """
    at = np.flatnonzero(seeds >= 0)
    if not len(at):
        return
    longest = int(np.diff(items.starts).max())
    found = _likest(
        tokens,
        seeds,
        at,
        items.tokens,
        items.starts,
        items.first,
        items.counts,
        items.own,
        items.offsets,
        items.likeness,
        marked,
        np.zeros((2, longest + 1), np.int64),
    )
    for own in np.flatnonzero(found > 0):
        yield int(own), float(found[own])


@compiled
def _common(left: Any, right: Any, rows: Any) -> int:
    rows[:] = 0
    for i in range(right.size):
        now, before = i % 2, 1 - i % 2
        for j in range(left.size):
            if left[j] == right[i]:
                rows[now, j + 1] = rows[before, j] + 1
            else:
                rows[now, j + 1] = max(rows[before, j + 1], rows[now, j])
    return int(rows[(right.size - 1) % 2, left.size])


@compiled
def _likest(
    tokens: Any,
    seeds: Any,
    at: Any,
    item_tokens: Any,
    starts: Any,
    first: Any,
    counts: Any,
    own: Any,
    offsets: Any,
    likeness: Any,
    marked: Any,
    rows: Any,
) -> Any:
    best = np.zeros(starts.size - 1, np.float64)
    looked_at = np.full(starts.size - 1, np.iinfo(np.int64).min, np.int64)
    for i in at:
        seed = seeds[i]
        for k in range(first[seed], first[seed] + counts[seed]):
            item, start = own[k], i - offsets[k]
            if looked_at[item] == start:  # another seed of the same place
                continue
            looked_at[item] = start
            size = starts[item + 1] - starts[item]
            begin, end = max(0, start - _SLACK), min(tokens.size, start + size + _SLACK)
            if end - begin < likeness * size:
                continue
            common = _common(item_tokens[starts[item] : starts[item + 1]], tokens[begin:end], rows[:, : size + 1])
            if common >= likeness * size:
                marked[max(0, start) : start + size] = True
                best[item] = max(best[item], common / size)
    return best
