"""In which script the Chinese of a text is written, by characters that only one of the two scripts has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stoker.data.script.characters import script_characters
from stoker.data.script.folding import CODE_POINTS

_NEITHER, _SIMPLIFIED, _TRADITIONAL, _KANA, _HAN = range(5)
_HAN_BLOCKS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
_KANA_BLOCKS = ((0x3041, 0x3096), (0x30A1, 0x30FA), (0xFF66, 0xFF9D))
_BEYOND_LATIN = re.compile("[\u3041-\U000323af]")


@dataclass(frozen=True, slots=True)
class Scripts:
    """How many characters of a text speak for each script."""

    simplified: int
    """Characters that only the simplified script has."""
    traditional: int
    """Characters that only the traditional script has."""
    han: int
    """All Chinese characters, those of both scripts among them."""
    kana: int

    @property
    def traditional_share(self) -> float:
        """Of the characters that tell the scripts apart, the traditional ones; 0 where there are none."""
        return self.traditional / ((self.simplified + self.traditional) or 1)

    @property
    def is_japanese(self) -> bool:
        """Whether kana stand beside the Chinese characters as they do in Japanese."""
        return self.kana > 0.1 * self.han


@lru_cache(maxsize=1)
def _classes() -> npt.NDArray[np.uint8]:
    classes = np.full(CODE_POINTS, _NEITHER, dtype=np.uint8)
    for blocks, what in ((_HAN_BLOCKS, _HAN), (_KANA_BLOCKS, _KANA)):
        for first, last in blocks:
            classes[first : last + 1] = what
    characters = script_characters()
    classes[[ord(character) for character in characters.only_simplified]] = _SIMPLIFIED
    classes[[ord(character) for character in characters.only_traditional]] = _TRADITIONAL
    return classes


@dataclass(frozen=True, slots=True)
class LineScripts:
    """The counts of `Scripts` for each line of a text, int32 [lines]."""

    simplified: npt.NDArray[np.int32]
    traditional: npt.NDArray[np.int32]
    kana: npt.NDArray[np.int32]
    han: npt.NDArray[np.int32]


def scripts_of_lines(text: str) -> LineScripts:
    """Count the characters of each line by what they say about its script. Lines end at `\\n` alone."""
    code_points = np.frombuffer(f"{text}\n".encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    ends = np.flatnonzero(code_points == 0x0A)
    starts = np.concatenate([[0], ends[:-1] + 1])
    what = _classes()[code_points]
    simplified, traditional, kana, shared = (
        np.asarray(np.add.reduceat((what == one).astype(np.int32), starts))
        for one in (_SIMPLIFIED, _TRADITIONAL, _KANA, _HAN)
    )
    return LineScripts(simplified, traditional, kana, simplified + traditional + shared)


def scripts_of(text: str) -> Scripts:
    """Count the characters of `text` by what they say about its script."""
    if text.isascii() or _BEYOND_LATIN.search(text) is None:
        return Scripts(0, 0, 0, 0)
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    _, simplified, traditional, kana, shared = np.bincount(_classes()[code_points], minlength=5).tolist()
    return Scripts(simplified, traditional, simplified + traditional + shared, kana)
