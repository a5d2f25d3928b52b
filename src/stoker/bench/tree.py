"""Double binary tree: sums go up a tree and come down again, half of the buffer in each of two trees.

In the first tree ranks at odd places (counted from 1) are leaves, in the second those at even places, so that
nobody sends twice as much as others. Segments follow one another through the trees.

Cost of an all-reduce of n bytes over p ranks, trees of depth d (⌊log2 p⌋, or one more), k segments in each:
2d + k - 1 rounds of at most 2n/k bytes, at most (2d+k-1)·α + 2(1 + (2d-1)/k)·n·β, of which the part over k is for
filling and emptying the trees. Rounds grow with log p, not p as a ring's, and no rank sends more than 2n bytes in
all. Source: Sanders, Speck and Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 35(12).

Every rank gets the same bits: each element is added up on the way to one root, children in order of place, and then
only copied.
"""

from __future__ import annotations

from functools import lru_cache

from stoker.bench.rounds import Message, Round, pieces, round_of
from stoker.layout.shares import Bounds


def tree_all_reduce(rank: int, ranks: int, span: Bounds, segments: int) -> list[Round]:
    """The sum of all ranks' `span`, on every rank."""
    trees = two_trees(ranks)
    depth = max(max(depths(parents)) for parents in trees)
    sends: list[list[Message]] = [[] for _ in range(2 * depth + segments - 1)]
    receives: list[list[Message]] = [[] for _ in sends]
    for parents, half in zip(trees, pieces(span, 2), strict=True):
        own, parent = depths(parents)[rank], parents[rank]
        children = [child for child, its in enumerate(parents) if its == rank]
        for turn, (first, last) in enumerate(pieces(half, segments)):
            # At depth x a segment leaves upwards in round turn + depth - x, and arrives from above
            # in round turn + depth + x - 1.
            if parent is not None:
                sends[turn + depth - own].append(Message(parent, first, last))
                receives[turn + depth + own - 1].append(Message(parent, first, last))
            for child in children:
                receives[turn + depth - own - 1].append(Message(child, first, last, adds=True))
                sends[turn + depth + own].append(Message(child, first, last))
    return [round_of(out, come) for out, come in zip(sends, receives, strict=True)]


Parents = tuple[int | None, ...]
"""The parent of each rank; the root has none."""


@lru_cache
def two_trees(ranks: int) -> tuple[Parents, Parents]:
    """Two binary trees over all ranks, of which no rank but one (where their number is odd) is a leaf twice."""
    first = _tree(ranks)
    # The other tree is the first with ranks renamed so that odd and even places change.
    name = [(ranks - 1 - rank) if ranks % 2 == 0 else (rank + 1) % ranks for rank in range(ranks)]
    second: list[int | None] = [None] * ranks
    for rank, parent in enumerate(first):
        second[name[rank]] = None if parent is None else name[parent]
    return first, tuple(second)


def depths(parents: Parents) -> list[int]:
    """How far each rank is from the root."""

    def depth(rank: int) -> int:
        parent = parents[rank]
        return 0 if parent is None else 1 + depth(parent)

    return [depth(rank) for rank in range(len(parents))]


def _tree(ranks: int) -> Parents:
    """A search tree over places 1, 2, …: the height of a place is its number of trailing zero bits."""
    parents: list[int | None] = []
    for place in range(1, ranks + 1):
        above = place
        while True:
            low = above & -above
            above = (above ^ low) | (low << 1)
            if above <= ranks or low > ranks:
                break
        parents.append(above - 1 if above <= ranks else None)
    return tuple(parents)
