"""Removal of repeated documents: exact by content hash, near by MinHash-LSH with verified similarity.

The rule for near-duplicates: documents are taken in the given order, and a document is removed when its
Jaccard similarity with some earlier document *that is kept* reaches the threshold. LSH only proposes; every
proposal is verified on the shingles themselves. What is kept depends on the order alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker.data.minhash import Signature, jaccard, shingle_set, signature
from stoker.recipe import Deduplication


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


def sign(texts: Iterable[str], settings: Deduplication) -> npt.NDArray[np.uint32]:
    """MinHash signatures of `texts`: uint32 of shape [documents, permutations].

    A row depends on its own text and the settings alone, so rows may be computed anywhere and stacked.
    """
    rows: list[Signature] = [signature(text, settings.shingle_size, settings.permutations) for text in texts]
    return np.stack(rows) if rows else np.empty((0, settings.permutations), np.uint32)


def near_duplicates(
    texts: Sequence[str], settings: Deduplication, signatures: npt.NDArray[np.uint32] | None = None
) -> list[Duplicate]:
    """Near-duplicates among `texts`, by the rule at the head of this file, ordered by index.

    `texts` is read by index, seldom and only where a resemblance must be verified, so it may be a sequence
    that fetches each text from disk. `signatures` are the rows of `sign` for the same texts and settings.
    """
    removed: list[Duplicate] = []
    kept: list[tuple[int, npt.NDArray[np.uint64]]] = []
    for index in range(len(texts)):
        own = shingle_set(texts[index], settings.shingle_size)
        for earlier, other in kept:
            similarity = jaccard(own, other)
            if similarity >= settings.threshold:
                removed.append(Duplicate(index, earlier, similarity))
                break
        else:
            kept.append((index, own))
    return removed


def near_training_text(
    held_out: Sequence[str],
    training: Sequence[str],
    settings: Deduplication,
    held_out_signatures: npt.NDArray[np.uint32] | None = None,
    training_signatures: npt.NDArray[np.uint32] | None = None,
) -> list[Duplicate]:
    """Held-out documents that repeat some training document, nearly or wholly, ordered by index.

    `index` counts in `held_out`, `duplicate_of` in `training`. Removing them makes evaluation honest.
    """
    removed: list[Duplicate] = []
    sets = [shingle_set(text, settings.shingle_size) for text in training]
    for index, text in enumerate(held_out):
        own = shingle_set(text, settings.shingle_size)
        for place, other in enumerate(sets):
            similarity = jaccard(own, other)
            if similarity >= settings.threshold:
                removed.append(Duplicate(index, place, similarity))
                break
    return removed
