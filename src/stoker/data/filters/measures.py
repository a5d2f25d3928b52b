"""What the filters measure on a text: classes of characters, repetition, lines."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, code_points, shingle_hashes, token_hashes

_CODE_POINTS = 0x110000
_FIRST_PLANES = 0x20000
_UNSPACED_BLOCKS = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x2FDF), (0x3040, 0x31FF))
_HAN_BLOCKS = ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_OTHER, _SPACE, _SPACED_LETTER, _UNSPACED_LETTER, _DIGIT, _PUNCTUATION, _SYMBOL = range(7)
_LONG_RUN = 20
_LAYOUT = np.asarray([ord(character) for character in "-=_.*~+#|─━═│"], dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class Characters:
    """How many characters of each class a text has."""

    total: int
    spaces: int
    spaced_letters: int
    """Letters and marks of scripts that put spaces between words."""
    unspaced_letters: int
    """Characters of scripts that do not: Han, kana, Thai, Lao, Khmer, Myanmar."""
    digits: int
    punctuation: int
    symbols: int
    others: int
    """Control, private and unassigned characters."""
    spaced_words: int
    """Runs of letters of scripts that put spaces between words."""
    in_long_runs: int
    """Characters in runs of one and the same character longer than 20. Blanks and the rules that lay out a
    page (`-----`, `=====`, `.....`) do not count."""

    @property
    def visible(self) -> int:
        """Characters that are not blanks."""
        return self.total - self.spaces

    @property
    def letters(self) -> int:
        """Letters of any script."""
        return self.spaced_letters + self.unspaced_letters


@lru_cache(maxsize=1)
def _classes() -> npt.NDArray[np.uint8]:
    classes = np.full(_CODE_POINTS, _OTHER, dtype=np.uint8)
    by_category = {
        "L": _SPACED_LETTER,
        "M": _SPACED_LETTER,
        "N": _DIGIT,
        "P": _PUNCTUATION,
        "S": _SYMBOL,
        "Z": _SPACE,
    }
    for code_point in range(_FIRST_PLANES):
        classes[code_point] = by_category.get(unicodedata.category(chr(code_point))[0], _OTHER)
    classes[[0x09, 0x0A, 0x0C, 0x0D]] = _SPACE
    for first, last in _UNSPACED_BLOCKS:
        block = classes[first : last + 1]
        block[block == _SPACED_LETTER] = _UNSPACED_LETTER
    for first, last in _HAN_BLOCKS:
        classes[first : last + 1] = _UNSPACED_LETTER
    return classes


def characters(text: str) -> Characters:
    """Count the characters of `text` by class."""
    counts, words, in_runs = _counted(code_points(text), _classes(), _LAYOUT)
    others, spaces, spaced, unspaced, digits, punctuation, symbols = counts.tolist()
    return Characters(
        len(text),
        spaces,
        spaced,
        unspaced,
        digits,
        punctuation,
        symbols,
        others,
        spaced_words=words,
        in_long_runs=in_runs,
    )


@compiled
def _counted(own: Any, classes: Any, layout: Any) -> Any:
    counts = np.zeros(7, np.int64)
    words, in_runs, run = 0, 0, 0
    before = _SPACE
    for i in range(own.size):
        what = classes[own[i]]
        counts[what] += 1
        words += what == _SPACED_LETTER and before != _SPACED_LETTER
        before = what
        run += 1
        if i + 1 == own.size or own[i + 1] != own[i]:
            if run > _LONG_RUN and what != _SPACE and not (layout == own[i]).any():
                in_runs += run
            run = 0
    return counts, words, in_runs


def words(text: str) -> Hashes:
    """Hashes of the words of `text` (characters, in scripts without spaces), symbols and punctuation left out."""
    return token_hashes(text, symbols=False)


def repeated_share(tokens: Hashes, size: int) -> float:
    """Share of the runs of `size` tokens that occurred before in the text."""
    runs = np.sort(shingle_hashes(tokens, size))
    return int(np.count_nonzero(runs[1:] == runs[:-1])) / len(runs) if len(runs) else 0.0


def commonest_share(tokens: Hashes, size: int) -> float:
    """Share of the tokens that the commonest run of `size` tokens covers."""
    if not len(tokens):
        return 0.0
    runs = np.sort(shingle_hashes(tokens, size))
    starts = np.flatnonzero(np.concatenate([[True], runs[1:] != runs[:-1]]))
    occurrences = int(np.diff(starts, append=len(runs)).max())
    return min(1.0, occurrences * size / len(tokens))


def repeated_line_share(lines: Sequence[str]) -> float:
    """Share of the characters that stand in lines which occurred before."""
    total = repeated = 0
    seen: set[str] = set()
    for line in lines:
        total += len(line)
        if line in seen:
            repeated += len(line)
        seen.add(line)
    return repeated / total if total else 0.0


def share_matched(pattern: re.Pattern[str], text: str, visible: int) -> float:
    """Share of the visible characters that stand in matches of `pattern` (which should match no blanks alone)."""
    return sum(len(match[0]) for match in pattern.finditer(text)) / visible if visible else 0.0


def lost_share(text: str) -> float:
    """Share of the characters that stand for bytes which could not be decoded."""
    return 0.0 if text.isascii() else text.count("\ufffd") / len(text)
