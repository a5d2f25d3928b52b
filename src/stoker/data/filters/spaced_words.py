"""Words between blanks, and how much of a text the repeated runs of them cover: the unit of the published rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.filters.scanning import classes, room_for
from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, shingled

LONGEST_RUN = 10
"""Words of the longest runs that the published rules ask for."""


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


@dataclass(frozen=True, slots=True)
class RunsOfWords:
    """How much of a text the runs of so many neighbouring words cover that occur more than once, by their size."""

    commonest: npt.NDArray[np.int64]
    """Characters of all occurrences of the run that occurs most, blanks between its words included; 0 where none
    occurs twice [sizes, from 0 on]."""
    repeated: npt.NDArray[np.int64]
    """Characters of the words in runs that occurred before, each word counted once [sizes, from 0 on]."""


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


def runs_of(words: SpacedWords) -> RunsOfWords:
    """What the runs of 2 to 10 words cover."""
    return RunsOfWords(*_runs(words.hashes, words.lengths, LONGEST_RUN))


@compiled
def _runs(words: Any, lengths: Any, longest: int) -> Any:
    commonest, repeated = np.zeros(longest + 1, np.int64), np.zeros(longest + 1, np.int64)
    runs = np.empty(words.size + 1, np.uint64)
    recurs = np.ones(words.size, np.bool_)  # what recurs begins with a shorter run that recurs: look at no other
    left = words.size
    for size in range(2, min(longest, words.size) + 1):
        count = shingled(words, words.size, size, runs)
        room = room_for(left)
        table, counts = np.full(room, -1, np.int32), np.zeros(room, np.int32)
        recurs_too = np.zeros(words.size, np.bool_)
        best, most, left, until = 0, 1, 0, 0
        for i in range(count):
            if not recurs[i]:
                continue
            place = np.int64(runs[i] >> np.uint64(32)) & (room - 1)
            while table[place] >= 0 and runs[table[place]] != runs[i]:
                place = (place + 1) & (room - 1)
            first = table[place]
            counts[place] += 1
            if first < 0:
                table[place] = i
                continue
            left += 1 + (not recurs_too[first])
            recurs_too[first] = recurs_too[i] = True
            repeated[size] += lengths[max(i, until) : i + size].sum()
            until = i + size
            if counts[place] > most or (counts[place] == most and runs[i] < runs[best]):
                best, most = first, counts[place]
        if left == 0:
            break
        commonest[size] = most * (lengths[best : best + size].sum() + size - 1)
        recurs = recurs_too
    return commonest, repeated
