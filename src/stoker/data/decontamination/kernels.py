"""Compiled inner loops of the search for evaluation items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes

_LEAST_SLACK, _SLACK_PART = 2, 12
"""An item may be so many tokens longer or shorter in a document than in the evaluation set: 2, or a twelfth."""


@dataclass(frozen=True)
class SeededItems:
    """Items that are looked for whole, near where one of their seeds stands."""

    seed: int
    """Tokens of a seed."""
    likeness: float
    """Share of an item's tokens that must stand in order."""
    tokens: Hashes
    """Of all items, one after another."""
    starts: npt.NDArray[np.int64]
    """Where the tokens of each begin, and the end of all [items + 1]."""
    items: npt.NDArray[np.int32]
    """The evaluation item that each is, or is a piece of [items]."""
    seeds: Hashes
    """Sorted [seeds]."""
    buckets: npt.NDArray[np.int64]
    """See `bucket_starts`."""
    first: npt.NDArray[np.int64]
    """Where the occurrences of each seed begin in `own` and `offsets` [seeds]."""
    counts: npt.NDArray[np.int64]
    """How many occurrences of each seed are looked at [seeds]."""
    own: npt.NDArray[np.int32]
    """The item of each occurrence of a seed."""
    offsets: npt.NDArray[np.int32]
    """The token of that item at which it begins."""

    @classmethod
    def of(cls, tables: Mapping[str, npt.NDArray[Any]], name: str, seed: int, likeness: float) -> SeededItems:
        """Those of the part `name` of some tables."""
        names = ("tokens", "starts", "items", "seeds", "seeds.buckets", "first", "counts", "own", "offsets")
        return cls(seed, likeness, *(tables[f"{name}.{one}"] for one in names))


def bucket_starts(keys: Hashes) -> npt.NDArray[np.int64]:
    """Where the keys begin that share their highest bits, of sorted keys: one bucket for every one or two keys."""
    bits = max(1, len(keys).bit_length() - 1)
    edges = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    return np.append(np.searchsorted(keys, edges), len(keys)).astype(np.int64)


def looked_up(hashes: Hashes, keys: Hashes, buckets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The place of each of `hashes` among sorted `keys`, -1 where it is not among them [hashes]."""
    found: npt.NDArray[np.int64] = _looked_up(hashes, keys, buckets, 65 - len(buckets).bit_length())
    return found


@compiled
def _looked_up(hashes: Any, keys: Any, buckets: Any, shift: int) -> Any:
    found = np.full(hashes.size, -1, np.int64)
    for i in range(hashes.size):
        bucket = np.int64(hashes[i] >> np.uint64(shift))
        for place in range(buckets[bucket], buckets[bucket + 1]):
            if keys[place] == hashes[i]:
                found[i] = place
                break
    return found


@compiled
def thinned(hashes: Any, window: int) -> Any:
    """Places of those of `hashes` that are the least of any `window` neighbours (Roberts et al. 2004) [kept]."""
    kept = np.empty(hashes.size, np.int64)
    count, last = 0, -1
    for start in range(max(1, hashes.size - window + 1)):
        least = start
        for place in range(start + 1, min(start + window, hashes.size)):
            if hashes[place] < hashes[least]:
                least = place
        if least != last:
            kept[count] = least
            count, last = count + 1, least
    return kept[:count]


def found_near(
    tokens: Hashes, seeds: Hashes, items: SeededItems, marked: npt.NDArray[np.bool_]
) -> Iterator[tuple[float, int]]:
    """(share, evaluation item) of the items in a document of `tokens`, whose tokens are `marked` in place.

    `seeds` are the document's [tokens - seed + 1]. The share is the longest common subsequence of item and
    document near a seed, over the tokens of the item.
    """
    places = looked_up(seeds, items.seeds, items.buckets)
    at = np.flatnonzero(places >= 0)
    if not len(at):
        return
    owners, shares = _likest(
        *(tokens, places, at, items.tokens, items.starts),
        *(items.first, items.counts, items.own, items.offsets, items.likeness, marked),
    )
    yield from zip(shares.tolist(), items.items[owners].tolist(), strict=True)


@compiled
def _common(left: Any, right: Any) -> int:
    """Length of the longest common subsequence."""
    row = np.zeros(left.size + 1, np.int64)
    for i in range(right.size):
        diagonal = row[0]
        for j in range(left.size):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if left[j] == right[i] else max(above, row[j])
            diagonal = above
    return int(row[left.size])


@compiled
def _likest(
    tokens: Any,
    places: Any,
    at: Any,
    item_tokens: Any,
    starts: Any,
    first: Any,
    counts: Any,
    own: Any,
    offsets: Any,
    likeness: float,
    marked: Any,
) -> Any:
    """(items that are found, share of each); one may be found several times."""
    looked_at = {np.int64(-1): np.int64(0)}
    owners, shares = [np.int64(0) for _ in range(0)], [0.0 for _ in range(0)]
    for i in at:
        seed = places[i]
        for k in range(first[seed], first[seed] + counts[seed]):
            item, start = np.int64(own[k]), np.int64(i - offsets[k])
            if item in looked_at and looked_at[item] == start:  # another seed of the same place
                continue
            looked_at[item] = start
            size = starts[item + 1] - starts[item]
            slack = max(_LEAST_SLACK, size // _SLACK_PART)
            begin, end = max(0, start - slack), min(tokens.size, start + size + slack)
            if end - begin < likeness * size:
                continue
            common = _common(item_tokens[starts[item] : starts[item + 1]], tokens[begin:end])
            if common >= likeness * size:
                marked[max(0, start) : start + size] = True
                owners.append(item)
                shares.append(common / size)
    return np.array(owners, dtype=np.int64), np.array(shares, dtype=np.float64)
