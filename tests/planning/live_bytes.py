"""Counts the bytes that torch has allocated and not let go of, by every allocation it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from stoker.parallel import collectives, recompute

_MARK = 7_654_321
"""Bytes of an allocation that is made to find a moment among all others."""


def peak_bytes(function: Callable[[], object]) -> int:
    """Most bytes that `function` holds at once beyond what it found."""
    held = highest = 0
    for size in _allocations([function]):
        held += 0 if abs(size) == _MARK else size
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


@torch.library.custom_op("stoker::own_rows_for_tests", mutates_args=())
def _own_rows(x: Tensor, ranks: int) -> Tensor:
    return x[: len(x) // ranks].clone()


class _Alone:
    """Takes the place of collectives: results of the right sizes, whatever is in them, and nothing is sent.

    Real ones let go of memory on threads of their own, which nobody counts.
    """

    def all_gather_into_tensor(self, x: Tensor, ranks: int, group: str) -> Tensor:
        return torch.cat([x] * ranks)

    def reduce_scatter_tensor(self, x: Tensor, op: str, ranks: int, group: str) -> Tensor:
        return _own_rows(x, ranks)

    def all_reduce(self, x: Tensor, op: str, group: str) -> Tensor:
        return x.clone()

    def all_to_all_single(self, x: Tensor, receive: list[int], send: list[int], group: str) -> Tensor:
        return x.new_zeros((sum(receive), *x.shape[1:]))

    def wait_tensor(self, x: Tensor) -> Tensor:
        return x


@contextmanager
def _without_communication() -> Iterator[None]:
    real, sums = collectives._ops, recompute._SUM_OF_RANKS
    collectives._ops = _Alone()
    recompute._SUM_OF_RANKS = frozenset({"stoker::own_rows_for_tests"})
    try:
        yield
    finally:
        collectives._ops, recompute._SUM_OF_RANKS = real, sums


def _allocations(functions: Sequence[Callable[[], object]]) -> Iterator[int]:
    results: list[Any] = []
    with (
        _without_communication(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded,
    ):
        for function in functions:
            results.append(function())
            torch.empty(_MARK, dtype=torch.uint8)
    assert recorded.profiler is not None
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    assert events, "the profiler recorded no allocation"
    for event in sorted(events, key=lambda e: e.start_ns()):
        yield event.nbytes()
