"""A tokenizer's split pattern, read as data.

The patterns that byte-level tokenizers split text by are alternatives of a simple form: sets of characters, each
with how often it may repeat, and at the end perhaps a set that must not follow, or a group that may. That form,
and no other, is read here; what it means is what the regular expression means: the first alternative that matches
wins, every repetition takes as much as it can and gives back what it must.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

UNBOUNDED = 1 << 30
"""Stands for "any number of times"."""
_ESCAPES = re.compile(r"\\(?:[pP]\{\^?\w+\}|[sSdDwWrntfv]|[^\w])")
_QUANTIFIER = re.compile(r"[?*+]|\{(\d+)(?:(,)(\d*))?\}")
_SPECIAL = frozenset("|()[]{}?*+^$.\\")


class UnreadablePattern(ValueError):
    """The pattern is not of the form that is read here."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A set of characters, and how often it repeats."""

    characters: str
    """The set as a regular expression that matches one character."""
    least: int = 1
    most: int = 1


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to match: some repeated sets, one after another."""

    repeats: tuple[Repeat, ...]
    unless: str | None = None
    """A set that no character behind the match may belong to."""
    then: tuple[Alternative, ...] = ()
    """What belongs to the match as well where it follows: the first of these that does."""


def alternatives_of(pattern: str) -> tuple[Alternative, ...]:
    """The alternatives of a regular expression, in order.

    Raises `UnreadablePattern` for whatever is not of the form above, and for an alternative that could match
    nothing.
    """
    reader = _Reader(pattern)
    found = tuple(reader.alternatives(ignore_case=False))
    if reader.place != len(pattern):
        raise UnreadablePattern(f"unexpected {pattern[reader.place]!r} at character {reader.place}")
    if any(sum(repeat.least for repeat in one.repeats) == 0 for one in found):
        raise UnreadablePattern("an alternative matches the empty text")
    return found


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.place = 0

    def alternatives(self, ignore_case: bool) -> Iterator[Alternative]:
        yield from self._alternative(ignore_case)
        while self._took("|"):
            yield from self._alternative(ignore_case)

    def _alternative(self, ignore_case: bool) -> list[Alternative]:
        """One alternative, as several where a group in it has several."""
        ways: list[tuple[Repeat, ...]] = [()]
        while self.place < len(self._pattern) and self._pattern[self.place] not in "|)":
            if self._took("(?!"):
                unless = self._set(ignore_case)
                self._require(")")
                self._require_end()
                return [Alternative(way, unless) for way in ways]
            inner = self._group(ignore_case)
            if inner is not None and self._took("?"):
                self._require_end()
                return [Alternative(way, None, tuple(inner)) for way in ways]
            if inner is None:
                repeat = self._repeat(ignore_case)
                ways = [(*way, repeat) for way in ways]
                continue
            # Ways tried in turn are the same as alternatives only behind what cannot give anything back.
            if any(repeat.least != repeat.most for way in ways for repeat in way):
                raise UnreadablePattern("a group stands behind a set that repeats")
            ways = [way + one.repeats for way in ways for one in inner]
        return [Alternative(way) for way in ways]

    def _group(self, ignore_case: bool) -> list[Alternative] | None:
        if self._took("(?i:"):
            ignore_case = True
        elif not self._took("(?:"):
            return None
        inner = list(self.alternatives(ignore_case))
        self._require(")")
        repeated = _QUANTIFIER.match(self._pattern, self.place)
        if repeated and (repeated.group() != "?" or self._pattern.startswith(("??", "?+"), self.place)):
            raise UnreadablePattern("a group repeats")
        if any(one.unless is not None or one.then for one in inner):
            raise UnreadablePattern("a group looks ahead, or holds one that may be missing")
        return inner

    def _repeat(self, ignore_case: bool) -> Repeat:
        characters = self._set(ignore_case)
        found = _QUANTIFIER.match(self._pattern, self.place)
        if found is None:
            return Repeat(characters)
        self.place = found.end()
        if self.place < len(self._pattern) and self._pattern[self.place] in "?+*":
            raise UnreadablePattern("a repetition is lazy or keeps what it took")
        if found.group(1) is None:
            least, most = {"?": (0, 1), "*": (0, UNBOUNDED), "+": (1, UNBOUNDED)}[found.group()]
            return Repeat(characters, least, most)
        least = int(found.group(1))
        if found.group(2) is None:
            return Repeat(characters, least, least)
        return Repeat(characters, least, int(found.group(3)) if found.group(3) else UNBOUNDED)

    def _set(self, ignore_case: bool) -> str:
        start = self.place
        if self._pattern.startswith("[", start):
            self.place = self._end_of_bracket(start)
        elif escape := _ESCAPES.match(self._pattern, start):
            self.place = escape.end()
        elif start < len(self._pattern) and self._pattern[start] not in _SPECIAL:
            self.place = start + 1
        else:
            raise UnreadablePattern(f"no set of characters at character {start}")
        text = self._pattern[start : self.place]
        return f"(?i:{text})" if ignore_case else text

    def _end_of_bracket(self, start: int) -> int:
        depth, place = 0, start
        while place < len(self._pattern):
            sign = self._pattern[place]
            depth += (sign == "[") - (sign == "]")
            place += 2 if sign == "\\" else 1
            if depth == 0:
                return place
        raise UnreadablePattern(f"the bracket at character {start} does not end")

    def _require_end(self) -> None:
        if self.place < len(self._pattern) and self._pattern[self.place] not in "|)":
            raise UnreadablePattern("something follows what must be last")

    def _took(self, expected: str) -> bool:
        if not self._pattern.startswith(expected, self.place):
            return False
        self.place += len(expected)
        return True

    def _require(self, expected: str) -> None:
        if not self._took(expected):
            raise UnreadablePattern(f"{expected!r} expected at character {self.place}")
