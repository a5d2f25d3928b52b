"""Words between blanks, and how much of a text the repeated runs of them cover: the unit of the published rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.filters.scanning import classes, commonest_run, seen_before
from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, shingle_hashes


@dataclass(frozen=True, slots=True)
class SpacedWords:
    """What stands between blanks, punctuation included."""

    hashes: Hashes
    """Equal for equal words [words]."""
    lengths: npt.NDArray[np.int64]
    """Characters of each [words]."""
    with_letter: int
    """How many have a letter in them."""

    def __len__(self) -> int:
        return len(self.lengths)

    def commonest_characters(self, size: int) -> int:
        """Characters of all occurrences of the run of `size` words that occurs most, blanks between included."""
        if len(self) < size:
            return 0
        first, count = commonest_run(shingle_hashes(self.hashes, size))
        return int(count * (self.lengths[first : first + size].sum() + size - 1)) if count > 1 else 0

    def repeated_characters(self, size: int) -> int:
        """Characters of the words in runs of `size` that occurred before, each word counted once."""
        if len(self) < size:
            return 0
        covered = _covered(seen_before(shingle_hashes(self.hashes, size)), size)
        return int(self.lengths[covered].sum())


def cut_spaced_words(code_points: npt.NDArray[np.uint32]) -> SpacedWords:
    """The words of a text, given as code points [characters]."""
    return SpacedWords(*_words(code_points, classes()))


@compiled
def _words(own: Any, classes: Any) -> Any:
    hashes = np.empty(own.size // 2 + 1, np.uint64)
    lengths = np.empty(own.size // 2 + 1, np.int64)
    count, length, with_letter = 0, 0, 0
    has_letter = False
    value = np.uint64(0)
    for i in range(own.size + 1):
        what = 1 if i == own.size else classes[own[i]] & 0x0F
        if what == 1:  # a blank
            if length:
                value ^= value >> np.uint64(32)
                hashes[count], lengths[count] = value * np.uint64(0x9E3779B97F4A7C15), length
                count += 1
                with_letter += has_letter
            length, has_letter = 0, False
            continue
        if length == 0:
            value = np.uint64(0xCBF29CE484222325)
        value = (value ^ np.uint64(own[i])) * np.uint64(0x100000001B3)
        length += 1
        has_letter = has_letter or 2 <= what <= 5
    return hashes[:count], lengths[:count], with_letter


@compiled
def _covered(repeated: Any, size: int) -> Any:
    covered = np.zeros(repeated.size + size - 1, np.bool_)
    until = 0
    for i in range(covered.size):
        if i < repeated.size and repeated[i]:
            until = i + size
        covered[i] = i < until
    return covered
