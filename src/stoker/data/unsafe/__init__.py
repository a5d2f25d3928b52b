"""How much of a text is the vocabulary of advertisements for pornography, gambling and crime.

A word proves nothing: news, medicine, law and literature speak of all of this. What they do not do is to pile it
up; so terms are weighed by how rarely they stand anywhere else, and their density decides. Nothing here finds
insults, propaganda or danger that is described in plain words: that needs a classifier, not a list.
"""

from __future__ import annotations

import numpy as np

from stoker.data.filters.phrases import PhraseBook
from stoker.data.filters.rule import EVERY_KIND, OWN, Rule
from stoker.data.filters.text import Text

__all__ = ["UNSAFE", "unsafe_density"]

_TERMS = PhraseBook(__name__, "explicit.txt", "suggestive.txt")
_WEIGHTS = np.asarray([1.0, 0.3])
_LEAST_DIFFERENT = 3

UNSAFE = Rule(
    "unsafe",
    "unsafe.density",
    "above",
    0.04,
    EVERY_KIND,
    None,
    OWN,
    "terms of pornography, gambling or crime for sale stand thick in the text",
)
"""Drops where `data.cleaning.unsafe` is `drop`; its threshold is changed by its reason as others are."""


def unsafe_density(text: Text) -> float:
    """Terms to a word or Chinese character, a suggestive one as 0.3; 0 without an explicit one and 3 different."""
    counts = _TERMS.counts(text.code_points)
    explicit = _TERMS.file_numbers == 0
    if np.count_nonzero(counts) < _LEAST_DIFFERENT or not counts[explicit].any():
        return 0.0
    return float(counts @ _WEIGHTS[_TERMS.file_numbers]) / max(1, len(text.tokens))
