"""A collective as data: rounds of messages between ranks that each hold a buffer of the same length.

A program has the same number of rounds on every rank, and both ends of a message stand in the same round, in the
same order among the messages between the same two ranks. So ranks that go through their rounds in order never wait
for each other in a circle, on whatever carries the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from stoker.layout.shares import Bounds, chunk


class Message(NamedTuple):
    """Elements of this rank's buffer that go to `peer`, or places of it that are filled by `peer`."""

    peer: int
    first: int
    last: int
    adds: bool = False
    """Of what comes: added to what is there; otherwise it takes its place."""

    @property
    def length(self) -> int:
        """Elements."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Round:
    """What one rank sends and receives at a time. What is sent is what was there before the round."""

    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()


Program = tuple[Round, ...]
"""Of one rank."""


class Cost(NamedTuple):
    """What a collective costs in the α-β model (Hockney 1994): rounds · α + length · β."""

    rounds: int
    """In which anything is sent."""
    length: int
    """Elements: the sum over rounds of the most that any rank sends, or receives, in it."""


def round_of(sends: Iterable[Message], receives: Iterable[Message]) -> Round:
    """A round without the messages that are empty."""
    return Round(
        tuple(message for message in sends if message.length),
        tuple(message for message in receives if message.length),
    )


def pieces(span: Bounds, parts: int) -> list[Bounds]:
    """`span` cut into `parts`, by the rule of `stoker.layout.shares.chunk`: the last may be shorter or empty."""
    first, last = span
    return [(first + start, first + stop) for start, stop in (chunk(last - first, parts, i) for i in range(parts))]


def side_by_side(programs: Sequence[Sequence[Round]]) -> list[Round]:
    """Several programs of one rank at once, round by round."""
    merged = []
    for rounds in zip_longest(*programs, fillvalue=Round()):
        sends = tuple(message for one in rounds for message in one.sends)
        merged.append(Round(sends, tuple(message for one in rounds for message in one.receives)))
    return merged


def renamed(program: Sequence[Round], ranks: Sequence[int]) -> list[Round]:
    """A program of rank i among some, as one of rank `ranks[i]` among all."""

    def other(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(message._replace(peer=ranks[message.peer]) for message in messages)

    return [Round(other(one.sends), other(one.receives)) for one in program]


def cost_of(programs: Sequence[Program]) -> Cost:
    """The cost of the programs of all ranks."""
    rounds = length = 0
    for at_once in zip(*programs, strict=True):
        most = max(max(sum(m.length for m in one.sends), sum(m.length for m in one.receives)) for one in at_once)
        rounds += most > 0
        length += most
    return Cost(rounds, length)
