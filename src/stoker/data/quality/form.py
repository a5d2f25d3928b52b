"""The form of a text: what it is like whatever its words say.

Repetition, kinds of characters, lengths of words and lines, and how much its signs vary, each as a number of about
the size of 1. All are counted, none needs a list of words, and all mean the same in any language, so that junk of a
kind that a classifier never saw still has a form that good text has not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.filters.scanning import classes, count_characters, cut_lines, ends_a_sentence, seen_before
from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, code_points, shingle_hashes

Floats = npt.NDArray[np.float64]
LONGEST = 1 << 14
"""Characters that are looked at: the beginning of a text."""
NAMES = (
    "spaces",
    "digits",
    "punctuation",
    "symbols",
    "control characters",
    "unspaced letters",
    "word length",
    "lines",
    "line length",
    "spread of line lengths",
    "lines that end a sentence",
    "repeated lines",
    "repeated words",
    "repeated runs of 3",
    "repeated runs of 8",
    "variety of characters",
    "variety of pairs",
    "capitals",
)
"""Of the measures, in order; logarithms of lengths and of counts, shares of all else."""
REPETITION = slice(11, 15)
"""Which of them say how much a text repeats itself."""
_PAIRS = 1 << 12
"""Buckets in which pairs of characters are counted."""
_WINDOW = 256
"""Tokens within which a repeated word counts: in a long text every word comes again."""


def form_of(text: str, tokens: Hashes) -> Floats:
    """The measures of `text`, whose `tokens` are those of `features.tokens_of`: float64 [measures]."""
    points = code_points(text[:LONGEST])
    own = tokens[:LONGEST]
    count, lines = count_characters(points), cut_lines(points)
    visible, letters = max(count.visible, 1), max(count.letters, 1)
    lengths = np.log2(np.maximum(lines.lengths, 1))
    repeated = int(lines.lengths[seen_before(lines.hashes)].sum())
    characters, pairs, capitals = _varieties(points, _capitals(), np.zeros(_PAIRS), np.zeros(_PAIRS))
    return np.asarray(
        [
            count.spaces / max(count.total, 1),
            count.digits / visible,
            count.punctuation / visible,
            count.symbols / visible,
            count.others / visible,
            count.unspaced_letters / letters,
            np.log2(count.spaced_letters / count.spaced_words) if count.spaced_words else 0.0,
            np.log2(max(len(lines), 1) / max(count.total, 1) * 100),
            lengths.mean() if len(lines) else 0.0,
            lengths.std() if len(lines) else 0.0,
            float(ends_a_sentence(lines.last).mean()) if len(lines) else 0.0,
            repeated / visible,
            _repeated_within(own, _WINDOW),
            *(float(seen_before(shingle_hashes(own, size)).mean()) if len(own) > size else 0.0 for size in (3, 8)),
            characters,
            pairs,
            capitals / letters,
        ]
    )


def _repeated_within(tokens: Hashes, size: int) -> float:
    """Share of the tokens that stand earlier in the same window of `size`: the mean over windows."""
    if not len(tokens):
        return 0.0
    whole = max(1, len(tokens) // size)
    parts = np.array_split(tokens[: whole * size], whole)
    return float(np.mean([seen_before(part).mean() for part in parts]))


@lru_cache(maxsize=1)
def _capitals() -> npt.NDArray[np.bool_]:
    """Which code points are capital letters [code points of the classes]."""
    table = np.zeros(len(classes()), np.bool_)
    for point in range(0x3000):
        table[point] = chr(point).isupper()
    return table


@compiled
def _varieties(points: Any, is_capital: Any, single: Any, paired: Any) -> Any:
    """(bits of a character, bits of a character behind the one before it, capital letters).

    Entropies of hashed counts, with the correction of Miller (1955) for short texts.
    """
    capitals = 0
    before = np.uint32(0)
    for point in points:
        single[np.int64((np.uint64(point) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(52))] += 1
        pair = (np.uint64(before) << np.uint64(21)) | np.uint64(point)
        paired[np.int64((pair * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(52))] += 1
        capitals += is_capital[point]
        before = point
    characters = _bits(single, points.size)
    return characters, _bits(paired, points.size) - characters, capitals


@compiled
def _bits(counts: Any, total: int) -> Any:
    if total == 0:
        return 0.0
    found, different = 0.0, 0
    for count in counts:
        if count > 0:
            different += 1
            found -= count / total * np.log2(count / total)
    return found + (different - 1) / (2 * total * np.log(2.0))
