"""Which pairs of queries and keys see one another, as rectangles of places small enough to be worked on.

Each query of a piece sees at least one of its keys, so that no softmax is ever taken over nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from stoker.layout.shares import Bounds


class Piece(NamedTuple):
    """Queries and keys of one document; among them, the causal order and the window decide."""

    row: int | None
    """The sequence of the batch; None: all of them."""
    queries: Bounds
    """Places in the whole sequence, as are `keys`."""
    keys: Bounds
    query_shift: int
    """Place less index among the queries at hand."""
    key_shift: int

    @property
    def rows(self) -> slice:
        """The sequences of the batch."""
        return slice(None) if self.row is None else slice(self.row, self.row + 1)

    @property
    def query_slice(self) -> slice:
        """The queries among those at hand."""
        return slice(self.queries[0] - self.query_shift, self.queries[1] - self.query_shift)

    @property
    def key_slice(self) -> slice:
        """The keys among those at hand."""
        return slice(self.keys[0] - self.key_shift, self.keys[1] - self.key_shift)

    def sees_all(self, window: int | None) -> bool:
        """Whether every query sees every key."""
        farthest = self.queries[1] - 1 - self.keys[0]
        return self.keys[1] - 1 <= self.queries[0] and (window is None or farthest < window)

    def is_triangle(self, window: int | None) -> bool:
        """Whether query i sees exactly the keys up to i."""
        return self.queries == self.keys and (window is None or self.queries[1] - self.queries[0] <= window)

    def tiles(self, window: int | None, rows: int | None) -> Iterator[Piece]:
        """The piece by `rows` queries at a time (None: all at once), each with the keys it sees."""
        first, last = self.queries
        for start in range(first, last, rows or max(last - first, 1)):
            seen = _visible((start, min(start + rows, last) if rows else last), self.keys, window)
            if seen is not None:
                yield self._replace(queries=seen[0], keys=seen[1])


Documents = tuple[tuple[int, ...], ...]
"""The first place of each document, for each sequence of the batch."""


@lru_cache(maxsize=64)  # all layers, forward and backward, work on the same
def find_pieces(
    queries: tuple[Bounds, ...], keys: tuple[Bounds, ...], documents: Documents | None, window: int | None
) -> tuple[Piece, ...]:
    """The pieces of queries and keys at hand, each given as ranges of places laid one after another.

    Without `documents` each sequence is one.
    """
    pieces = []
    for row, starts in enumerate(((0,),) if documents is None else documents):
        for query_range, query_shift in _laid_out(queries):
            for document, query_part in _documents_in(query_range, starts):
                for key_range, key_shift in _laid_out(keys):
                    # Keys before all queries and keys among them: most need no mask then.
                    for key_part in _cut_at(_intersection(key_range, document), query_part[0]):
                        seen = _visible(query_part, key_part, window)
                        if seen is not None:
                            rows = None if documents is None else row
                            pieces.append(Piece(rows, *seen, query_shift, key_shift))
    return tuple(pieces)


def document_starts(starts: Tensor | None) -> Documents | None:
    """The first place of each document in each sequence, from marks [B, L] on the first tokens."""
    if starts is None:
        return None
    documents: list[list[int]] = [[] for _ in range(len(starts))]
    for row, place in starts.nonzero().tolist():
        documents[row].append(place)
    return tuple(tuple(row) for row in documents)


def _laid_out(ranges: Sequence[Bounds]) -> Iterator[tuple[Bounds, int]]:
    index = 0
    for first, last in ranges:
        yield (first, last), first - index
        index += last - first


def _documents_in(places: Bounds, starts: Sequence[int]) -> Iterator[tuple[Bounds, Bounds]]:
    """Each document that has some of `places`: it, as far as they go, and its part of them."""
    first, last = places
    index = bisect_right(starts, first) - 1
    while first < last:
        end = starts[index + 1] if index + 1 < len(starts) else last
        stop = min(end, last)
        yield (starts[index], stop), (first, stop)
        first, index = stop, index + 1


def _visible(queries: Bounds, keys: Bounds, window: int | None) -> tuple[Bounds, Bounds] | None:
    """The queries that see any of the keys, and the keys that any of the queries see; None if there are none."""
    (query, last_query), (key, last_key) = queries, keys
    last_key = min(last_key, last_query)
    if window is not None:
        key = max(key, query - window + 1)
        last_query = min(last_query, last_key - 1 + window)
    query = max(query, key)
    return ((query, last_query), (key, last_key)) if query < last_query and key < last_key else None


def _cut_at(places: Bounds, place: int) -> tuple[Bounds, Bounds]:
    return (places[0], min(places[1], place)), (max(places[0], place), places[1])


def _intersection(one: Bounds, other: Bounds) -> Bounds:
    return max(one[0], other[0]), min(one[1], other[1])
