"""Where two texts differ, in the eyes of the search for repetitions.

Texts are cut into the tokens by which documents are compared (`stoker.data.normal_form`): words where words are
spaced, single characters elsewhere; case, width, spacing, punctuation and the script of Chinese make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from stoker.data.minhash import code_points
from stoker.data.normal_form import ALONE, BREAK, EXPANDED, KIND_SHIFT, SKIP, WORD, normal_form

MOST_CHARACTERS = 200_000
"""So much of each text is compared: enough for people, and over in a second."""
_CONTEXT = 40
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Place:
    """A place at which two texts differ, with what stands around it in the first."""

    before: str
    first: str
    """What the first text has there; empty where it has nothing."""
    second: str
    """What the second has."""
    behind: str


@dataclass(frozen=True, slots=True)
class Differences:
    """Where two texts differ."""

    places: tuple[Place, ...]
    """The first of them."""
    count: int
    """How many there are."""
    whole: bool
    """Whether both texts were compared to their ends."""


@dataclass(frozen=True, slots=True)
class _Tokens:
    keys: list[bytes]
    starts: list[int]
    stops: list[int]


def differences(first: str, second: str, most: int = 3) -> Differences:
    """Where `second` differs from `first`: the first `most` places, and how many there are.

    Places that are a token apart are one. Long stretches are shortened in the middle.
    """
    whole = max(len(first), len(second)) <= MOST_CHARACTERS
    first, second = first[:MOST_CHARACTERS], second[:MOST_CHARACTERS]
    left, right = _tokens(first), _tokens(second)
    changed = [
        (i, j, k, m)
        for tag, i, j, k, m in SequenceMatcher(None, left.keys, right.keys).get_opcodes()
        if tag != "equal"
    ]
    merged: list[tuple[int, int, int, int]] = []
    for one in changed:
        if merged and one[0] - merged[-1][1] <= 1:
            merged[-1] = (merged[-1][0], one[1], merged[-1][2], one[3])
        else:
            merged.append(one)
    places = []
    for i, j, k, m in merged[:most]:
        begin, end = _span(left, i, j, len(first))
        places.append(
            Place(
                before=_ending(first[:begin]),
                first=shortened(first[begin:end]),
                second=shortened(second[slice(*_span(right, k, m, len(second)))]),
                behind=_beginning(first[end:]),
            )
        )
    return Differences(tuple(places), len(merged), whole)


def shortened(text: str, most: int = _LONGEST) -> str:
    """`text`, or its beginning and end where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-(most // 3) :]}"


def _span(tokens: _Tokens, first: int, after: int, length: int) -> tuple[int, int]:
    """The characters of some tokens; where there are none, the place between their neighbours."""
    if after > first:
        return tokens.starts[first], tokens.stops[after - 1]
    place = tokens.starts[first] if first < len(tokens.starts) else length
    return place, place


def _ending(text: str) -> str:
    return ("…" if len(text) > _CONTEXT else "") + text[-_CONTEXT:] if text else ""


def _beginning(text: str) -> str:
    return text[:_CONTEXT] + ("…" if len(text) > _CONTEXT else "")


def _tokens(text: str) -> _Tokens:
    entries = normal_form(one_script=True).entries[code_points(text)]
    kinds = np.where(entries >= EXPANDED, WORD, entries >> np.uint32(KIND_SHIFT)).tolist()
    found = _Tokens([], [], [])
    begun: int | None = None
    stop = 0

    def end_word() -> None:
        nonlocal begun
        if begun is not None:
            _add(found, entries, kinds, begun, stop)
            begun = None

    for place, kind in enumerate(kinds):
        if kind == WORD:
            begun = place if begun is None else begun
            stop = place + 1
        elif kind == ALONE:
            end_word()
            _add(found, entries, kinds, place, place + 1)
        elif kind == BREAK:
            end_word()
    end_word()
    return found


def _add(
    found: _Tokens, entries: np.ndarray[tuple[int], np.dtype[np.uint32]], kinds: list[int], start: int, stop: int
) -> None:
    seen = [place for place in range(start, stop) if kinds[place] != SKIP]
    found.keys.append(entries[seen].tobytes())
    found.starts.append(start)
    found.stops.append(stop)
