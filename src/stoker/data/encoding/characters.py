"""Which sets of a split pattern each code point belongs to.

The sets are asked of the `tokenizers` library's own regular expressions, so its tables of Unicode are the ones
used, whatever their version. Code points that are in the same sets form one class; the matcher knows classes alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import Regex, pre_tokenizers

from stoker.data.encoding.split_pattern import UnreadablePattern
from stoker.data.stored_tables import Tables, stored_tables

CODE_POINTS = 0x110000
_FIRST_UNASSIGNED = 0x33480
"""Unicode 17 assigns nothing from here to the tags, and nothing but private characters behind them."""
_TAGS = range(0xE0000, 0xE0200)
_SURROGATES = range(0xD800, 0xE000)
_BEYOND = (_FIRST_UNASSIGNED, 0x50000, 0xDFFFD, 0xE0200, 0xEFFFD, 0xF0000, 0x10FFFD)
_MOST_CLASSES = 64


def classes_of(sets: Sequence[str]) -> tuple[npt.NDArray[np.uint8], dict[str, int]]:
    """The class of each code point, uint8 [0x110000], and the classes of each set as bits: bit c for class c.

    Each set is a regular expression that matches one character. Raises `UnreadablePattern` when the library does
    not take one, or when there are more than 64 sets or classes.
    """
    if len(sets) > _MOST_CLASSES:
        raise UnreadablePattern(f"the pattern has {len(sets)} sets of characters")
    made_from = json.dumps([tokenizers.__version__, *sets])  # asking takes most of a second
    tables = stored_tables("classes", made_from, Path(__file__), lambda: _asked_classes(sets))
    return tables["classes"], dict(zip(sets, tables["bits"].tolist(), strict=True))


def _asked_classes(sets: Sequence[str]) -> Tables:
    """`classes`, and the `bits` of each set in order: uint64 [sets]."""
    signatures = np.zeros(CODE_POINTS, np.uint64)
    for number, one in enumerate(sets):
        signatures |= _members(one).astype(np.uint64) << np.uint64(number)
    found, first, classes = np.unique(signatures, return_index=True, return_inverse=True)
    if len(found) > _MOST_CLASSES:
        raise UnreadablePattern(f"the sets of the pattern part characters into {len(found)} classes")
    bits = [sum(1 << number for number, code in enumerate(first.tolist()) if _members(one)[code]) for one in sets]
    return {"classes": classes.astype(np.uint8), "bits": np.asarray(bits, np.uint64)}


@cache
def _members(characters: str) -> npt.NDArray[np.bool_]:
    """Whether each code point is in a set: bool [0x110000]; false for surrogates, which no text holds."""
    if characters == r"\S":
        members: npt.NDArray[np.bool_] = ~_members(r"\s")
        members[_SURROGATES] = False
        return members
    members = np.zeros(CODE_POINTS, np.bool_)
    if len(characters) == 1:
        members[ord(characters)] = True
        return members
    codes = _case_variants() if characters.startswith("(?i:") and len(characters) == len("(?i:x)") else _assigned()
    members[codes] = _asked(characters, codes)
    beyond = _asked(characters, np.asarray(_BEYOND))
    if beyond.any() != beyond.all():
        raise UnreadablePattern(f"{characters} parts characters that Unicode does not assign")
    if beyond.all():
        members[_FIRST_UNASSIGNED:] = True
        members[_TAGS] = _asked(characters, np.asarray(_TAGS))
    return members


@cache
def _assigned() -> npt.NDArray[np.int64]:
    lower = range(_FIRST_UNASSIGNED)
    return np.asarray([*(code for code in lower if code not in _SURROGATES), *_TAGS])


@cache
def _case_variants() -> npt.NDArray[np.int64]:
    """Code points that are some Latin letter or sign of ASCII when case is ignored."""
    codes = _assigned()
    return codes[_asked("(?i:[\\x00-\\x7f])", codes)]


def _asked(characters: str, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether the library's regular expression `characters` matches each code point, each by itself."""
    try:
        outside = pre_tokenizers.Split(Regex(f"(?:{characters})+"), behavior="removed")
    except Exception as error:  # the library raises bare Exception
        raise UnreadablePattern(f"{characters} is no set of characters: {error}") from error
    members = np.ones(len(codes), np.bool_)
    for _, (start, stop) in outside.pre_tokenize_str("".join(map(chr, codes.tolist()))):
        members[start:stop] = False
    return members
