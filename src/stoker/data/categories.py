"""The general category of every character, found once: what the tables of code points are made from.

Most code points are Chinese characters, syllables of Hangul, or nothing at all. Tables that ask
the categories first look only at the few thousand characters that can have a lower case or a name of their own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Container
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FIRST_PLANES = 0x20000
"""Code points of the first two planes: all that have case, digits or signs."""


@lru_cache(maxsize=1)
def _numbered() -> tuple[list[str], npt.NDArray[np.intp]]:
    """The categories, such as `Lu`, and the number of each code point's among them."""
    letters = "".join(map(unicodedata.category, map(chr, range(FIRST_PLANES))))
    own, number = np.unique(np.frombuffer(letters.encode(), "<u2"), return_inverse=True)
    return [name.tobytes().decode() for name in own], number


def code_points_in(wanted: Container[str]) -> list[int]:
    """Code points of the first two planes in one of the `wanted` categories, given by name or initial."""
    return np.flatnonzero(are_in(wanted)).tolist()


def are_in(wanted: Container[str]) -> npt.NDArray[np.bool_]:
    """Whether each code point of the first two planes is in one of the `wanted` categories: [131,072]."""
    own, number = _numbered()
    return np.asarray([name in wanted or name[0] in wanted for name in own])[number]
