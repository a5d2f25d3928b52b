"""Removal of repeated documents: exact by content hash, near by MinHash-LSH with verified similarity.

The rule for near-duplicates: documents are taken in the given order, and a document is removed when its
Jaccard similarity with some earlier document *that is kept* reaches the threshold. LSH only proposes; every
proposal is verified on the shingles themselves. What is kept depends on the order alone.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker.data.minhash import EMPTY, Hashes, band_keys, jaccard, proposed, shingle_set, signature
from stoker.recipe import Deduplication

Signatures = npt.NDArray[np.uint32]
"""MinHash signatures by row: [documents, permutations]."""

_CHANCE_AT_THRESHOLD = 0.995
_BYTES_OF_SHINGLE_SETS = 1 << 28


@dataclass(frozen=True, slots=True)
class Duplicate:
    """One removed document."""

    index: int
    """Its place in the given order."""
    duplicate_of: int
    """Place of the kept document that it repeats."""
    similarity: float
    """Verified Jaccard similarity of the two, 1.0 for an identical text."""


def content_digest(text: str) -> bytes:
    """SHA-256 of the text in UTF-8: equal for identical texts."""
    return hashlib.sha256(text.encode()).digest()


def exact_duplicates(digests: Iterable[bytes]) -> list[Duplicate]:
    """Documents whose content digest appeared earlier, in order; each names the first with that digest."""
    first: dict[bytes, int] = {}
    removed = []
    for index, digest in enumerate(digests):
        earlier = first.setdefault(digest, index)
        if earlier != index:
            removed.append(Duplicate(index, earlier, 1.0))
    return removed


def sign(texts: Iterable[str], settings: Deduplication) -> Signatures:
    """MinHash signatures of `texts`: uint32 of shape [documents, permutations].

    A row depends on its own text and the settings alone, so rows may be computed anywhere and stacked.
    """
    rows = [signature(text, settings.shingle_size, settings.permutations) for text in texts]
    return np.stack(rows) if rows else np.empty((0, settings.permutations), np.uint32)


def bands_and_rows(settings: Deduplication) -> tuple[int, int]:
    """How a signature is cut into LSH bands: (bands, rows in each).

    The most rows (fewest false proposals) with which a pair at the very threshold still shares a band with a
    probability of at least `_CHANCE_AT_THRESHOLD`; pairs above the threshold are found with a higher one.
    """
    for rows in range(settings.permutations, 1, -1):
        bands = settings.permutations // rows
        if 1 - (1 - settings.threshold**rows) ** bands >= _CHANCE_AT_THRESHOLD:
            return bands, rows
    return settings.permutations, 1


def near_duplicates(
    texts: Sequence[str], settings: Deduplication, signatures: Signatures | None = None
) -> list[Duplicate]:
    """Near-duplicates among `texts`, by the rule at the head of this file, ordered by index.

    `texts` is read by index, seldom and only where a resemblance must be verified, so it may be a sequence
    that fetches each text from disk. `signatures` are the rows of `sign` for the same texts and settings.
    """
    signatures = sign(texts, settings) if signatures is None else signatures
    gone = _without_tokens(signatures)
    search = _Search(signatures, gone, texts.__getitem__, settings)
    removed = []
    for index in search.with_proposals():
        duplicate = search.first_match(index)
        if duplicate is not None:
            removed.append(duplicate)
            gone[index] = True
    return removed


def near_training_text(
    held_out: Sequence[str],
    training: Sequence[str],
    settings: Deduplication,
    held_out_signatures: Signatures | None = None,
    training_signatures: Signatures | None = None,
) -> list[Duplicate]:
    """Held-out documents that repeat some training document, nearly or wholly, ordered by index.

    `index` counts in `held_out`, `duplicate_of` in `training`. Removing them makes evaluation honest.
    """
    held_out_signatures = sign(held_out, settings) if held_out_signatures is None else held_out_signatures
    training_signatures = sign(training, settings) if training_signatures is None else training_signatures
    first = len(training)
    signatures = np.concatenate([training_signatures, held_out_signatures])
    gone = _without_tokens(signatures)
    gone[first:] = True  # a held-out document is compared with training documents only

    def text_of(index: int) -> str:
        return training[index] if index < first else held_out[index - first]

    search = _Search(signatures, gone, text_of, settings)
    matches = (search.first_match(index) for index in search.with_proposals() if index >= first)
    return [Duplicate(match.index - first, match.duplicate_of, match.similarity) for match in matches if match]


def _without_tokens(signatures: Signatures) -> npt.NDArray[np.bool_]:
    """Texts without a single token: nothing resembles them."""
    return np.asarray((signatures == EMPTY).all(axis=1))


class _Search:
    """Finds, for a document, an earlier one that is not `gone` and resembles it; `gone` may grow meanwhile."""

    def __init__(
        self,
        signatures: Signatures,
        gone: npt.NDArray[np.bool_],
        text_of: Callable[[int], str],
        settings: Deduplication,
    ) -> None:
        bands, rows = bands_and_rows(settings)
        deviation = math.sqrt(settings.threshold * (1 - settings.threshold) / settings.permutations)
        self._signatures = signatures
        self._gone = gone
        self._links = _band_links(signatures, bands, rows)
        self._least_agreeing = math.ceil((settings.threshold - 3 * deviation) * settings.permutations)
        self._stamps = np.full(len(signatures), -1, dtype=np.int64)
        self._threshold = settings.threshold
        self._sets = _ShingleSets(text_of, settings.shingle_size)

    def with_proposals(self) -> Iterator[int]:
        """Documents that share a band with an earlier one, in order."""
        return map(int, np.flatnonzero((self._links >= 0).any(axis=1)))

    def first_match(self, index: int) -> Duplicate | None:
        """The likeliest proposal whose verified similarity reaches the threshold; ties go to the earliest."""
        proposals, agreeing = proposed(
            index, self._links, self._gone, self._signatures, self._stamps, self._least_agreeing
        )
        for place in np.lexsort((proposals, -agreeing)):
            earlier = int(proposals[place])
            own, other = self._sets.of(index), self._sets.of(earlier)
            if min(len(own), len(other)) < self._threshold * max(len(own), len(other)):
                continue
            similarity = jaccard(own, other)
            if similarity >= self._threshold:
                return Duplicate(index, earlier, similarity)
        return None


def _band_links(signatures: Signatures, bands: int, rows: int) -> npt.NDArray[np.int64]:
    """For each document and band, the nearest earlier document with the same band, or -1: [documents, bands]."""
    links = np.full((len(signatures), bands), -1, dtype=np.int64)
    for band in range(bands):
        keys = band_keys(signatures, band * rows, (band + 1) * rows)
        order = np.argsort(keys, kind="stable")
        same = keys[order[1:]] == keys[order[:-1]]
        links[order[1:][same], band] = order[:-1][same]
    return links


class _ShingleSets:
    """Shingle sets of documents, the latest used kept in memory up to a bound."""

    def __init__(self, text_of: Callable[[int], str], shingle_size: int) -> None:
        self._text_of = text_of
        self._shingle_size = shingle_size
        self._kept: OrderedDict[int, Hashes] = OrderedDict()
        self._bytes = 0

    def of(self, index: int) -> Hashes:
        found = self._kept.get(index)
        if found is not None:
            self._kept.move_to_end(index)
            return found
        made = shingle_set(self._text_of(index), self._shingle_size)
        self._kept[index] = made
        self._bytes += made.nbytes
        while self._bytes > _BYTES_OF_SHINGLE_SETS and len(self._kept) > 2:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return made
