"""The commonest words of English, which running text cannot do without and lists of keywords have none of."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from stoker.data.minhash import Hashes, token_hashes

_ENGLISH = (
    "the of and to is that for with this are you from which have they it was be not by or as on at we were had "
    "their will if can has its there what when would your my his her but been who our them these she he so than"
)
"""Left out are `a`, `in`, `an`, `do`, `no` and the like, which are as common in other languages of Latin script."""


@lru_cache(maxsize=1)
def _english() -> Hashes:
    return np.sort(token_hashes(_ENGLISH))


def english_share(tokens: Hashes) -> float:
    """Share of the words, given as hashes [tokens], that are function words of English."""
    if not len(tokens):
        return 0.0
    known = _english()
    places = np.searchsorted(known, tokens).clip(max=len(known) - 1)
    return float(np.count_nonzero(known[places] == tokens) / len(tokens))
