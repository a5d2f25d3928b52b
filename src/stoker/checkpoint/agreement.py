"""What the ranks of a save or load tell each other, so that all succeed or all fail the same way.

Without a process group there is one rank, and nothing to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from stoker.errors import BadInput, NonFinite, StokerError

T = TypeVar("T")
_KINDS: tuple[type[StokerError], ...] = (BadInput, NonFinite, StokerError)


def rank_and_ranks() -> tuple[int, int]:
    """This process's rank and how many there are."""
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def from_everyone(value: T) -> list[T]:
    """The `value` of every rank, in order of rank. Collective."""
    _, ranks = rank_and_ranks()
    if ranks == 1:
        return [value]
    values: list[Any] = [None] * ranks
    dist.all_gather_object(values, value)
    return values


def from_first(value: T) -> T:
    """Rank 0's `value`, on every rank. Collective."""
    _, ranks = rank_and_ranks()
    if ranks == 1:
        return value
    values: list[Any] = [value]
    dist.broadcast_object_list(values, src=0)
    first: T = values[0]
    return first


def together(action: Callable[[], T]) -> T:
    """Run `action` on every rank. When it fails on any, every rank raises. Collective.

    The first rank's `StokerError` is raised everywhere, and so is what the operating system refused, as a
    `StokerError`. A rank that failed in any other way raises its own error, and the others one that names it.
    """
    result: T | None = None
    failure: Exception | None = None
    try:
        result = action()
    except Exception as error:
        failure = error
    failures = [found for found in from_everyone(_described(failure)) if found is not None]
    if not failures:
        return result  # type: ignore[return-value]
    if failure is not None and not isinstance(failure, StokerError | OSError):
        raise failure
    # An error Stoker understands says more than one it does not.
    kind, message = sorted(failures, key=lambda found: found[0] is None)[0]
    raise (_KINDS[kind] if kind is not None else StokerError)(message) from failure


def _described(error: Exception | None) -> tuple[int | None, str] | None:
    if error is None:
        return None
    for number, kind in enumerate(_KINDS):
        if isinstance(error, kind):
            return number, str(error)
    rank, _ = rank_and_ranks()
    return None, f"rank {rank} failed: {type(error).__name__}: {error}"
