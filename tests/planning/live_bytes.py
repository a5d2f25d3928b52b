"""Counts the bytes that torch has allocated and not let go of, by every allocation it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

_MARK = 7_654_321
"""Bytes of an allocation that is made to find a moment among all others."""


def peak_bytes(function: Callable[[], object]) -> int:
    """Most bytes that `function` holds at once beyond what it found."""
    held = highest = 0
    for size in _allocations([function]):
        held += size
        highest = max(highest, held)
    return highest


def kept_bytes(functions: Sequence[Callable[[], object]]) -> list[int]:
    """What is left of each function's allocations when it has returned; results are kept until the last has."""
    held, found = 0, [0]
    for size in _allocations(functions):
        if size == _MARK:
            found.append(held)
        elif size != -_MARK:
            held += size
    return [after - before for before, after in pairwise(found)]


def _allocations(functions: Sequence[Callable[[], object]]) -> Iterator[int]:
    results: list[Any] = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        for function in functions:
            results.append(function())
            torch.empty(_MARK, dtype=torch.uint8)
    assert recorded.profiler is not None
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    assert events, "the profiler recorded no allocation"
    for event in sorted(events, key=lambda e: e.start_ns()):
        yield event.nbytes()
