"""Plays the programs of all ranks in one process, on values that say how they came about."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from stoker.bench.rounds import Program


def play(programs: Sequence[Program], buffers: list[list[Any]], add: Callable[[Any, Any], Any]) -> None:
    """Round by round, in place. Fails unless every message has its two ends in one round, in one order."""
    assert len({len(program) for program in programs}) == 1
    for at_once in zip(*programs, strict=True):
        wires: dict[tuple[int, int], deque[list[Any]]] = defaultdict(deque)
        for rank, one in enumerate(at_once):
            for message in one.sends:
                wires[rank, message.peer].append(buffers[rank][message.first : message.last])
        for rank, one in enumerate(at_once):
            for message in one.receives:
                values = wires[message.peer, rank].popleft()
                places = range(message.first, message.last)
                assert len(values) == len(places) > 0
                for place, value in zip(places, values, strict=True):
                    buffers[rank][place] = add(buffers[rank][place], value) if message.adds else value
        assert not any(wires.values())
