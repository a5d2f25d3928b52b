"""Near-duplicates among documents that fit in memory by their signatures, each removal verified on the text.

Documents are taken in the given order, the preferred first. With `clusters: direct` a document is removed when its
similarity with some earlier document *that is kept* reaches the threshold: so all that is kept is pairwise below
it, and all that is removed has its like among what is kept. With `clusters: connected` the first of all documents
that a chain of such resemblances links is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication.bands import (
    band_links,
    bands_and_rows,
    join,
    least_agreeing,
    proposals,
    root,
    unlike_proposals,
    without_tokens,
)
from stoker.data.deduplication.duplicates import Duplicates, Integers
from stoker.data.deduplication.signing import sign
from stoker.data.minhash import Hashes, Signatures, Utf8, jaccard, shingle_set
from stoker.recipe import Deduplication

Texts = Sequence[str] | Sequence[Utf8]
"""Texts by index; read seldom, and only where a resemblance must be verified, so they may lie on disk."""
_BYTES_OF_SHINGLE_SETS = 1 << 27


def near_duplicates(texts: Texts, settings: Deduplication, signatures: Signatures | None = None) -> Duplicates:
    """Near-duplicates among `texts`, by the rule at the head of this file.

    `signatures` are those of the same texts by the same settings, [documents, permutations].
    """
    signatures = sign(map(_as_text, texts), settings) if signatures is None else signatures
    gone = without_tokens(signatures)
    search = _Search(signatures, gone, texts, settings)
    if settings.clusters == "connected":
        return _connected(search, len(signatures))
    removed = []
    for index in search.with_proposals():
        match = search.first_match(index)
        if match is not None:
            removed.append((index, *match))
            gone[index] = True
    return Duplicates.of(removed)


def near_others(
    texts: Texts,
    others: Texts,
    settings: Deduplication,
    signatures: Signatures | None = None,
    other_signatures: Signatures | None = None,
) -> Duplicates:
    """Documents of `texts` that repeat one of `others`, nearly or wholly.

    `index` counts in `texts`, `duplicate_of` in `others`.
    """
    signatures = sign(map(_as_text, texts), settings) if signatures is None else signatures
    other_signatures = sign(map(_as_text, others), settings) if other_signatures is None else other_signatures
    first = len(other_signatures)
    both = np.concatenate([other_signatures, signatures])
    gone = without_tokens(both)
    gone[first:] = True  # they are compared with the others only
    search = _Search(both, gone, _Chained(others, texts), settings)
    found = ((index - first, search.first_match(index)) for index in search.with_proposals() if index >= first)
    return Duplicates.of((index, *match) for index, match in found if match is not None)


def _as_text(text: str | Utf8) -> str:
    return text if isinstance(text, str) else text.tobytes().decode()


def _connected(search: _Search, count: int) -> Duplicates:
    """One document of each component of verified resemblances stays."""
    parents = np.arange(count, dtype=np.int32)
    links = search.links.copy()  # those of the search are shortened over what has joined another
    for index in search.with_proposals():
        match = search.first_match(index)
        if match is not None:
            join(parents, index, match[0])
            search.gone[index] = True
        search.join_all(index, links, parents)
    heads = [int(root(parents, index)) for index in range(count)]
    members = [(index, head) for index, head in enumerate(heads) if index != head]
    return Duplicates.of((index, head, search.similarity(index, head)) for index, head in members)


class _Chained(Sequence[str | Utf8]):
    def __init__(self, first: Texts, second: Texts) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __getitem__(self, index: int) -> str | Utf8:  # type: ignore[override]
        return self._first[index] if index < len(self._first) else self._second[index - len(self._first)]

    def __iter__(self) -> Iterator[str | Utf8]:
        return chain(self._first, self._second)


class _Search:
    """Finds, for a document, an earlier one that is not `gone` and resembles it; `gone` may grow meanwhile."""

    def __init__(
        self,
        signatures: Signatures,
        gone: npt.NDArray[np.bool_],
        texts: Texts | _Chained,
        settings: Deduplication,
    ) -> None:
        self.gone = gone
        self.links = band_links(signatures, *bands_and_rows(settings))
        self._signatures = signatures
        self._least = least_agreeing(settings)
        self._stamps = np.full(len(signatures), -1, dtype=np.int64)
        self._stamps_of_joining = self._stamps.copy()
        self._threshold = settings.threshold
        self._sets = _ShingleSets(texts, settings.shingle_size)

    def with_proposals(self) -> Iterator[int]:
        """Documents with tokens that share a band with an earlier one, in order."""
        return map(int, np.flatnonzero((self.links >= 0).any(axis=1) & ~without_tokens(self._signatures)))

    def first_match(self, index: int) -> tuple[int, float] | None:
        """The likeliest proposal whose verified similarity reaches the threshold; ties go to the earliest."""
        found, agreeing = proposals(index, self.links, self.gone, self._signatures, self._stamps, self._least)
        for earlier in _likeliest_first(found, agreeing):
            similarity = self._reached(index, earlier)
            if similarity is not None:
                return earlier, similarity
        return None

    def join_all(self, index: int, links: npt.NDArray[np.int32], parents: npt.NDArray[np.int32]) -> None:
        """Join `index` with every earlier document that resembles it and is not in its component yet."""
        found, agreeing = unlike_proposals(
            index, links, parents, self._signatures, self._stamps_of_joining, self._least
        )
        for earlier in _likeliest_first(found, agreeing):
            if root(parents, earlier) != root(parents, index) and self._reached(index, earlier) is not None:
                join(parents, index, earlier)

    def similarity(self, one: int, other: int) -> float:
        """Verified similarity of two documents."""
        return jaccard(self._sets.of(one), self._sets.of(other))

    def _reached(self, index: int, earlier: int) -> float | None:
        own, other = self._sets.of(index), self._sets.of(earlier)
        if min(len(own), len(other)) < self._threshold * max(len(own), len(other)):
            return None
        similarity = jaccard(own, other)
        return similarity if similarity >= self._threshold else None


def _likeliest_first(found: Integers, agreeing: Integers) -> list[int]:
    order: list[int] = found[np.lexsort((found, -agreeing))].tolist()
    return order


class _ShingleSets:
    """Shingle sets of documents, the latest used kept in memory up to a bound."""

    def __init__(self, texts: Texts | _Chained, shingle_size: int) -> None:
        self._texts, self._shingle_size = texts, shingle_size
        self._kept: OrderedDict[int, Hashes] = OrderedDict()
        self._bytes = 0

    def of(self, index: int) -> Hashes:
        found = self._kept.get(index)
        if found is not None:
            self._kept.move_to_end(index)
            return found
        made = shingle_set(self._texts[index], self._shingle_size)
        self._kept[index] = made
        self._bytes += made.nbytes
        while self._bytes > _BYTES_OF_SHINGLE_SETS and len(self._kept) > 2:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return made
