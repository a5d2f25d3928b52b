"""East Asian and Cyrillic text whose bytes were read in the wrong encoding, line by line.

Where a line can be turned back into the bytes that were read, and these are text in another encoding, there is a
reason to read it again. Bytes that are valid UTF-8 with characters of three bytes are so for no other cause. Other
encodings take nearly any bytes, so there the line must hold hardly any frequent character as it is, and mostly
frequent ones as it would be; or, where it would be Chinese, its characters must be far likelier than they are.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stoker.data.commonness import commonness
from stoker.data.frequent_characters import FREQUENT, likeness

_READ_AS_FOR_UTF8 = ("cp932", "cp949", "euc_jp", "big5hkscs", "gb18030")
"""Encodings that UTF-8 was read in."""
_OTHERS = (
    ("latin-1", "gb18030"),
    ("latin-1", "big5hkscs"),
    ("latin-1", "cp932"),
    ("latin-1", "cp949"),
    ("big5hkscs", "gb18030"),
    ("gb18030", "big5hkscs"),
    ("cp949", "gb18030"),
    ("cp932", "gb18030"),
    ("gb18030", "cp932"),
)
"""(what was read in, what should have been)."""
_LEAST_BEYOND_ASCII = 6
_SUSPICIOUS = 0.35
"""Likeness of a line, up to which it may be something else misread: Big5 that was read as GBK has many kana."""
_LIKE_TEXT, _MOSTLY_LIKE_TEXT = 0.2, 0.4
"""Likeness of what a line would be. Runs of accented letters are no text, whatever they stand for."""
_CHINESE = ("gb18030", "big5hkscs")
_TEXT = -9.0
"""Mean logarithm of the frequency of the characters of Chinese, from which a line may be text: of 2,000 lines each
in either script 199 in 200 are above it, and of the same lines misread hardly any."""
_LIKELIER, _FAR_LIKELIER = 2.5, 25.0
"""By how much (in natural logarithms) a line must be likelier read again: a character, and all together."""
_SEVERAL, _MANY = 4, 8
"""Different East Asian characters from which a line may be such text, and from which accented letters may be text
of rare ones: one letter or sign again and again (`één één`) is one character again and again in any encoding."""
_LEAST_EAST_ASIAN = 3
_FOREIGN = re.compile("[\u00c0-\u024f\u0400-\u052f]")
"""Letters that East Asian encodings have, and East Asian text hardly uses."""
_CYRILLIC = re.compile("(?:[РС][\u0080-\u00bf\u0400-\u045f\u0490\u0491\u2010-\u2122]){3}")
_CYRILLIC_LETTERS = re.compile("[\u0400-\u045f]")


def repair_line(line: str) -> str | None:
    """`line` read again, or None when it is as it should be, or cannot be told."""
    if _CYRILLIC.search(line) and (decoded := _as_cyrillic(line)) is not None:
        return decoded
    if likeness(line) > _SUSPICIOUS:
        return None
    if max(line) > "\u2122":  # beyond what Windows-1252 has
        for misread in _READ_AS_FOR_UTF8:
            decoded = _decoded(line, misread, "utf-8")
            if decoded is not None and _east_asian(decoded) >= _LEAST_EAST_ASIAN:
                return decoded
    tried = [
        (commonness(decoded)[0], decoded)
        for read, real in _OTHERS
        if (decoded := _decoded(line, read, real)) is not None
        and _is_convincing(decoded, line, read, real)
        and _FOREIGN.search(decoded) is None
    ]
    return max(tried)[1] if tried else None


def _is_convincing(decoded: str, line: str, read: str, real: str) -> bool:
    """Whether `decoded`, the bytes of `line` read otherwise, is text, and `line` is not."""
    different = _east_asian("".join(set(decoded)))
    if different < _SEVERAL:
        return False
    if read == "latin-1":
        return likeness(decoded) >= _LIKE_TEXT or (
            different >= _MANY and real in _CHINESE and _is_far_likelier(decoded, line)
        )
    return _is_far_likelier(decoded, line) if real in _CHINESE else likeness(decoded) >= _MOSTLY_LIKE_TEXT


def _is_far_likelier(decoded: str, line: str) -> bool:
    """Whether the characters of `decoded` are those of Chinese text, and the same bytes as `line` are not."""
    mean, count = commonness(decoded)
    mean_as_is, count_as_is = commonness(line)
    gain = mean * count - mean_as_is * count_as_is
    return mean >= _TEXT and mean - mean_as_is >= _LIKELIER and gain >= _FAR_LIKELIER


def suspicious_lines(text: str) -> list[int]:
    """Numbers of the lines, from 0, that may have been misread.

    They have enough characters beyond ASCII, of which hardly any is a frequent one of East Asian text, and which
    are of East Asian encodings alone, or mostly letters of Latin-1 side by side, as no language has them, or
    Cyrillic.
    """
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    starts = np.concatenate([[0], np.flatnonzero(code_points == 0x0A) + 1])
    starts = starts[starts < code_points.size]
    if not starts.size:
        return []
    what = _classes()[code_points]

    def counted(of: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        return np.asarray(np.add.reduceat(of.astype(np.int32), starts))

    beyond = counted(what > _ASCII)
    maybe = (beyond >= _LEAST_BEYOND_ASCII) & (counted(what == _FREQUENT) <= _SUSPICIOUS * beyond)
    if not maybe.any():
        return []
    latin = what == _LATIN_1
    pairs = latin.copy()
    pairs[1:] &= latin[:-1]
    pairs[:1] = False
    east_asian = counted((what == _EAST_ASIAN) | (what == _FREQUENT)) >= 0.6 * beyond
    cyrillic = counted(what == _CYRILLIC_LEAD) >= 0.4 * beyond
    found = np.flatnonzero(maybe & (east_asian | (counted(pairs) >= 0.4 * beyond) | cyrillic))
    return [int(one) for one in found]


_ASCII, _OTHER, _FREQUENT, _EAST_ASIAN, _LATIN_1, _CYRILLIC_LEAD = range(6)


@lru_cache(maxsize=1)
def _classes() -> npt.NDArray[np.uint8]:
    table = np.full(0x110000, _OTHER, dtype=np.uint8)
    table[:0x80] = _ASCII
    table[0x80:0x100] = _LATIN_1
    table[list(_TO_LATIN)] = _LATIN_1
    table[0x2E80:0xD7A4] = table[0xE000:0xF900] = table[0xFF00:0xFFF0] = _EAST_ASIAN
    table[[ord("Р"), ord("С")]] = _CYRILLIC_LEAD
    table[[ord(character) for character in FREQUENT if character > "\u2fff"]] = _FREQUENT
    return table


def _east_asian(text: str) -> int:
    return sum("\u3000" <= character <= "\ud7a3" or "\uff00" <= character <= "\uffef" for character in text)


def _as_cyrillic(line: str) -> str | None:
    """A line of UTF-8 that was read as Windows-1251."""
    try:  # the byte 98 has no character in it, and comes through as a control character
        decoded = b"\x98".join(piece.encode("cp1251") for piece in line.split("\x98")).decode("utf-8")
    except UnicodeError:
        return None
    return decoded if len(_CYRILLIC_LETTERS.findall(decoded)) >= 3 else None


def _decoded(line: str, read_as: str, real: str) -> str | None:
    try:
        # What Windows-1252 has in place of control characters is a byte as well.
        raw = line.translate(_TO_LATIN).encode("latin-1") if read_as == "latin-1" else line.encode(read_as)
        decoded = raw.decode(real)
    except UnicodeError:
        return None
    strange = any(unicodedata.category(one) in ("Cn", "Co", "Cs", "Cc") for one in set(decoded) - {"\t"})
    return None if strange else decoded


_TO_LATIN = {
    ord(character): byte
    for byte in range(0x80, 0xA0)
    if (character := bytes([byte]).decode("cp1252", "replace")) != "\ufffd"
}
