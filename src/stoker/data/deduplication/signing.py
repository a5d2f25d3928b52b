"""Signatures of texts by the settings of a recipe."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.data.minhash import Signatures
from stoker.data.minhash import sign as _sign
from stoker.recipe import Deduplication


def sign(texts: Iterable[str], settings: Deduplication) -> Signatures:
    """MinHash signatures of `texts`: uint32 of shape [documents, permutations].

    A row depends on its own text and the settings alone, so rows may be computed anywhere and stacked.
    """
    return _sign(list(texts), settings.shingle_size, settings.permutations)
