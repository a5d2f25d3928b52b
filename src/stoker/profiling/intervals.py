"""Sets of moments in time: arrays of starts and ends, in whole nanoseconds, so that sums are exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in order, each from its start up to and without its end."""

    starts: Numbers
    ends: Numbers

    @property
    def total(self) -> int:
        """How long they last together."""
        return int((self.ends - self.starts).sum())

    def __or__(self, other: Intervals) -> Intervals:
        return union(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __and__(self, other: Intervals) -> Intervals:
        return _where(self, other, both=True)

    def __sub__(self, other: Intervals) -> Intervals:
        return _where(self, other, both=False)


NONE = Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
"""No moment at all."""


def union(starts: Iterable[int], ends: Iterable[int]) -> Intervals:
    """The moments that lie in any of the given intervals, which may overlap and come in any order."""
    first, last = _numbers(starts), _numbers(ends)
    there = last > first
    order = np.argsort(first[there], kind="stable")
    first, last = first[there][order], last[there][order]
    if not first.size:
        return NONE
    reach = np.maximum.accumulate(last)
    begins = np.concatenate([[True], first[1:] > reach[:-1]])
    ends_here = np.concatenate([begins[1:], [True]])
    return Intervals(first[begins], reach[ends_here])


def of_pairs(pairs: Iterable[tuple[int, int]]) -> Intervals:
    """The moments that lie in any of `pairs` of start and end."""
    given = list(pairs)
    return union([start for start, _ in given], [end for _, end in given])


def partition(window: tuple[int, int], layers: Sequence[tuple[str, Intervals]], rest: str) -> dict[str, Intervals]:
    """Give each moment of `window` to the first of `layers` that covers it, and to `rest` where none does.

    What comes out is disjoint and covers the window. Layers may share a name.
    """
    left, found = of_pairs([window]), dict.fromkeys((name for name, _ in layers), NONE)
    for name, intervals in layers:
        found[name] = found[name] | (left & intervals)
        left = left - intervals
    found[rest] = found.get(rest, NONE) | left
    return found


@dataclass(frozen=True)
class Nested:
    """Events of one thread, which begin and end inside each other."""

    parents: Numbers
    """[events] The event that each is directly in; -1: none."""
    starts: Numbers
    """[segments] Where nothing begins or ends within."""
    ends: Numbers
    owners: Numbers
    """[segments] The innermost event."""


def nest(starts: Iterable[int], ends: Iterable[int]) -> Nested:
    """Which event of a thread is inside which, and which is innermost at each moment.

    An event that ends after the one it is in, as rounding makes some, counts up to that one's end.
    """
    first, last = _numbers(starts), _numbers(ends).copy()
    parents = np.full(first.size, -1, dtype=np.int64)
    segments: list[tuple[int, int, int]] = []
    open_: list[int] = []
    cursor = 0

    def leave(until: int) -> None:
        nonlocal cursor
        while open_ and last[open_[-1]] <= until:
            event = open_.pop()
            if last[event] > cursor:
                segments.append((cursor, int(last[event]), event))
                cursor = int(last[event])

    for event in np.lexsort((-last, first)):
        begin = int(first[event])
        leave(begin)
        if open_:
            parents[event] = open_[-1]
            last[event] = min(last[event], last[open_[-1]])
            if begin > cursor:
                segments.append((cursor, begin, open_[-1]))
        cursor = max(cursor, begin)
        open_.append(int(event))
    leave(int(np.iinfo(np.int64).max))
    columns = np.array(segments, dtype=np.int64).reshape(-1, 3)
    return Nested(parents, columns[:, 0], columns[:, 1], columns[:, 2])


def _numbers(values: Iterable[int]) -> Numbers:
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int64)


def _where(one: Intervals, other: Intervals, *, both: bool) -> Intervals:
    """Where `one` is and `other` is too, or is not."""
    edges = np.unique(np.concatenate([one.starts, one.ends, other.starts, other.ends]))
    starts, ends = edges[:-1], edges[1:]
    wanted = _covers(one, starts) & (_covers(other, starts) == both)
    return union(starts[wanted], ends[wanted])


def _covers(intervals: Intervals, moments: Numbers) -> np.ndarray[Any, np.dtype[np.bool_]]:
    place = np.searchsorted(intervals.starts, moments, side="right") - 1
    if not intervals.starts.size:
        return np.zeros(moments.size, dtype=bool)
    covered: np.ndarray[Any, np.dtype[np.bool_]] = (place >= 0) & (moments < intervals.ends[np.maximum(place, 0)])
    return covered
