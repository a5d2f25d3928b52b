"""The compiled matcher of split patterns: where the next word (pre-token) of a text ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.data.encoding.characters import classes_of
from stoker.data.encoding.split_pattern import Alternative, UnreadablePattern
from stoker.data.kernels import compiled

_MOST_ALTERNATIVES = 64
TRIED = 8
"""Sets one behind another in an alternative; the longest of the patterns in use has three."""


class SplitTable(NamedTuple):
    """A pattern as arrays. Alternatives are numbered in order, and so are their repeats, one after another."""

    classes: npt.NDArray[np.uint8]
    """Class of each code point: [0x110000]."""
    starters: npt.NDArray[np.uint64]
    """Alternatives that can begin with a character of each class, as bits: [classes]."""
    alternatives: npt.NDArray[np.uint64]
    """First repeat, the one behind the last, the classes that must not follow, as bits; then the first alternative
    that may follow, and the one behind the last; these stand behind all others and begin no word:
    [alternatives, 5]."""
    repeats: npt.NDArray[np.uint64]
    """Classes that it takes, as bits, how many characters at least and at most: [repeats, 3]."""


def split_table(alternatives: tuple[Alternative, ...]) -> SplitTable:
    """The arrays of a pattern. Raises `UnreadablePattern` when it has more parts than they take."""
    rows = [*alternatives, *(then for one in alternatives for then in one.then)]
    if len(alternatives) > _MOST_ALTERNATIVES or any(len(one.repeats) > TRIED for one in rows):
        raise UnreadablePattern("the pattern has too many parts")
    repeats = [repeat for one in rows for repeat in one.repeats]
    behind = [one.unless for one in rows if one.unless is not None]
    classes, bits = classes_of(list(dict.fromkeys([*(repeat.characters for repeat in repeats), *behind])))
    starters = np.zeros(int(classes.max()) + 1, np.uint64)
    for number, one in enumerate(alternatives):
        first = 0
        for repeat in one.repeats:
            first |= bits[repeat.characters]
            if repeat.least:
                break
        for kind in range(len(starters)):
            if first >> kind & 1:
                starters[kind] |= np.uint64(1 << number)
    return SplitTable(
        classes=classes,
        starters=starters,
        alternatives=_numbered(rows, len(alternatives), bits),
        repeats=np.asarray([(bits[one.characters], one.least, one.most) for one in repeats], np.uint64),
    )


def _numbered(rows: list[Alternative], first_then: int, bits: dict[str, int]) -> npt.NDArray[np.uint64]:
    numbered = []
    repeats, thens = 0, first_then
    for one in rows:
        unless = bits[one.unless] if one.unless is not None else 0
        numbered.append((repeats, repeats + len(one.repeats), unless, thens, thens + len(one.then)))
        repeats, thens = repeats + len(one.repeats), thens + len(one.then)
    return np.asarray(numbered, np.uint64)


@compiled
def classify(codes: Any, classes: Any) -> Any:
    """The class of each code point: uint8 of the shape of `codes`."""
    kinds = np.empty(len(codes), np.uint8)
    for place in range(len(codes)):
        kinds[place] = classes[codes[place]]
    return kinds


@compiled
def end_of_word(
    kinds: Any, place: int, stop: int, starters: Any, alternatives: Any, repeats: Any, tried: Any
) -> Any:
    """Where the word that begins at `place` ends, and whether text behind `stop` could change that.

    `kinds` are the characters' classes. Characters that no alternative matches make a word together, up to the next
    that one matches. `tried` is working memory: int64 [`TRIED`, 2].
    """
    open_end = False
    behind = place
    while behind < stop:
        candidates = starters[kinds[behind]]
        number = 0
        while candidates:
            if candidates & np.uint64(1):
                end, touched = _match(kinds, behind, stop, number, alternatives, repeats, tried)
                open_end |= touched
                if end >= 0 and behind > place:
                    return behind, open_end
                if end >= 0:
                    end, touched = _extended(kinds, end, stop, number, alternatives, repeats, tried)
                    return end, open_end | touched
            candidates >>= np.uint64(1)
            number += 1
        behind += 1
    return behind, True


@compiled
def _extended(kinds: Any, end: int, stop: int, number: int, alternatives: Any, repeats: Any, tried: Any) -> Any:
    """The end of a match with what may follow it, and whether the end of the text was looked at."""
    first, last = np.int64(alternatives[number, 3]), np.int64(alternatives[number, 4])
    touched = False
    for then in range(first, last):
        further, at_end = _match(kinds, end, stop, then, alternatives, repeats, tried)
        touched |= at_end
        if further >= 0:
            return further, touched
    return end, touched


@compiled
def _match(kinds: Any, place: int, stop: int, number: int, alternatives: Any, repeats: Any, tried: Any) -> Any:
    """The end of an alternative's match, -1 without one, and whether the end of the text was looked at.

    Every repeat takes all it can, and gives back one by one.
    """
    first, last = np.int64(alternatives[number, 0]), np.int64(alternatives[number, 1])
    unless = alternatives[number, 2]
    touched: Any = False
    item = first
    while True:
        while item < last:
            members, most = repeats[item, 0], np.int64(repeats[item, 2])
            count = 0
            while (
                count < most and place + count < stop and members >> np.uint64(kinds[place + count]) & np.uint64(1)
            ):
                count += 1
            touched |= place + count == stop and count < most
            if count < np.int64(repeats[item, 1]):
                break
            tried[item - first, 0], tried[item - first, 1] = place, count
            place += count
            item += 1
        else:
            touched |= place == stop and unless != np.uint64(0)
            if place == stop or not unless >> np.uint64(kinds[place]) & np.uint64(1):
                return place, touched
        item -= 1
        while item >= first and tried[item - first, 1] == np.int64(repeats[item, 1]):
            item -= 1
        if item < first:
            return -1, touched
        tried[item - first, 1] -= 1
        place = tried[item - first, 0] + tried[item - first, 1]
        item += 1
