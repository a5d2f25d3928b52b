"""How common the characters of a line are in Chinese text: what tells a right decoding from a wrong one.

A table, `commonness.npz`, has the frequency of each character in either script, counted from the words of jieba's
dictionary (MIT) by `benchmarks/character_table.py`. Characters that are no Chinese ones have a frequency of their
class: of Japanese and Korean text it is only said that it is text, not how likely it is.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from stoker.data.frequent_characters import FREQUENT

_UNKNOWN, _RARE = -16.0, -18.0
"""Natural logarithms of the frequency of a sign or a letter of another script, and of what no text has."""
_CLASSES = (
    (0x3000, 0x3030, -5.0),  # punctuation
    (0x3041, 0x3100, -6.0),  # kana
    (0xAC00, 0xD7A4, -8.0),  # Hangul
    (0xFF01, 0xFF5F, -6.0),  # full-width letters and punctuation
    (0x3400, 0x4DC0, _RARE),
    (0x4E00, 0xA000, _RARE),
    (0x20000, 0x32400, _RARE),
    (0xE000, 0xF900, _RARE),  # private use
)
_PUNCTUATION = "“”‘’…—·"
_DASHES_AND_DOTS = -7.0
_FREQUENT_HANGUL, _OTHER_HANGUL, _FREQUENT_KANA = -5.5, -10.0, -5.0
"""What tells Korean from bytes of Chinese read as Korean: of 2,350 syllables a hundred are most of a text."""


def commonness(text: str) -> tuple[float, int]:
    """(mean logarithm of the frequency of the characters beyond ASCII, their number); (0, 0) where there are none.

    Text in Chinese has about -7 for each character, a wrong decoding of such text about -13.
    """
    return _mean(text, _table())


def commonness_of_decoding(text: str) -> tuple[float, int]:
    """As `commonness`, where Japanese and Korean are likely too: for bytes that may be in any encoding."""
    return _mean(text, _table_of_decodings())


def _mean(text: str, table: npt.NDArray[np.float32]) -> tuple[float, int]:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    beyond = points[points > 0x7F]
    return (float(table[beyond].mean()), int(beyond.size)) if beyond.size else (0.0, 0)


@lru_cache(maxsize=1)
def _table_of_decodings() -> npt.NDArray[np.float32]:
    table = _table().copy()
    table[0x2010:0x2028] = np.maximum(table[0x2010:0x2028], _DASHES_AND_DOTS)
    table[0xAC00:0xD7A4] = _OTHER_HANGUL
    frequent = np.array([ord(character) for character in FREQUENT], dtype=np.uint32)
    table[frequent[(frequent >= 0xAC00) & (frequent < 0xD7A4)]] = _FREQUENT_HANGUL
    table[frequent[(frequent >= 0x3041) & (frequent < 0x3100)]] = _FREQUENT_KANA
    return table


@lru_cache(maxsize=1)
def _table() -> npt.NDArray[np.float32]:
    table = np.full(0x110000, _UNKNOWN, np.float32)
    for first, after, frequency in _CLASSES:
        table[first:after] = frequency
    table[[ord(character) for character in _PUNCTUATION]] = -5.0
    with files("stoker.data").joinpath("commonness.npz").open("rb") as stream, np.load(stream) as stored:
        table[np.cumsum(stored["steps"], dtype=np.uint32)] = stored["eighths"] / -8.0
    return table
