"""The commonest words of English and Chinese, which running text needs and lists of keywords have none of."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from stoker.data.hash_table import Hashes, HashTable, hash_table, numbers_of
from stoker.data.minhash import token_hashes

_ENGLISH = (
    "the of and to is that for with this are you from which have they it was be not by or as on at we were had "
    "their will if can has its there what when would your my his her but been who our them these she he so than"
)
"""Left out are `a`, `in`, `an`, `do`, `no` and the like, which are as common in other languages of Latin script."""


CHINESE = frozenset(
    "的一是不了在人有我他这這中大来來上个個们們为為和地到以之也者而其无無于於与與及可能会會就用下时時出生年此如何"
)
"""The commonest characters of Chinese, classical, simplified and traditional."""


@lru_cache(maxsize=1)
def _english() -> HashTable:
    return hash_table(np.unique(token_hashes(_ENGLISH)))


def english_share(tokens: Hashes) -> float:
    """Share of the words, given as hashes [tokens], that are function words of English."""
    return float(np.count_nonzero(numbers_of(tokens, _english()) >= 0) / len(tokens)) if len(tokens) else 0.0
