"""What the ranks of a save or load tell each other, so that all succeed or all fail the same way.

Without a process group there is one rank, and nothing to tell.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from stoker.errors import BadInput, NonFinite, StokerError

T = TypeVar("T")
Group = dist.ProcessGroup | None
"""Whose members agree; None: all ranks, by their own process group."""
Failure = tuple[int | None, str] | None
"""What other ranks are told of an error: its kind, by number, and what it says."""
_KINDS: tuple[type[StokerError], ...] = (BadInput, NonFinite, StokerError)


def rank_and_ranks() -> tuple[int, int]:
    """This process's rank and how many there are."""
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def new_group(timeout: datetime.timedelta) -> Group:
    """A group of all ranks for a thread of its own, over the host's network. Collective.

    No collective of it takes longer than `timeout`: it raises then, as when a rank is gone.
    """
    _, ranks = rank_and_ranks()
    return dist.new_group(backend="gloo", timeout=timeout) if ranks > 1 else None


def from_everyone(value: T, group: Group = None) -> list[T]:
    """The `value` of every rank, in order of rank. Collective over `group`, by default that of all ranks."""
    _, ranks = rank_and_ranks()
    if ranks == 1:
        return [value]
    values: list[Any] = [None] * ranks
    dist.all_gather_object(values, value, group=group)
    return values


def from_first(value: T, group: Group = None) -> T:
    """Rank 0's `value`, on every rank. Collective."""
    _, ranks = rank_and_ranks()
    if ranks == 1:
        return value
    values: list[Any] = [value]
    dist.broadcast_object_list(values, src=0, group=group)
    first: T = values[0]
    return first


def to_first(value: T, group: Group = None) -> list[T]:
    """The `value` of every rank on rank 0, and an empty list elsewhere. Collective."""
    rank, ranks = rank_and_ranks()
    if ranks == 1:
        return [value]
    values: list[Any] | None = [None] * ranks if rank == 0 else None
    dist.gather_object(value, values, dst=0, group=group)
    return values or []


def one_each(values: Sequence[T], group: Group = None) -> T:
    """The one of rank 0's `values` that is this rank's. Collective."""
    rank, ranks = rank_and_ranks()
    if ranks == 1:
        return values[0]
    own: list[Any] = [None]
    dist.scatter_object_list(own, list(values) if rank == 0 else None, src=0, group=group)
    mine: T = own[0]
    return mine


def summed(numbers: Sequence[int]) -> list[int]:
    """The sum over all ranks of each of some int64, modulo 2^64 (as signed numbers). Collective."""
    vector = torch.tensor(numbers, dtype=torch.int64)
    if rank_and_ranks()[1] > 1:
        if "gloo" not in dist.get_backend_config():
            vector = vector.to(torch.device("cuda", torch.cuda.current_device()))
        dist.all_reduce(vector)
    found: list[int] = vector.tolist()
    return found


def together(action: Callable[[], T], group: Group = None) -> T:
    """Run `action` on every rank. When it fails on any, every rank raises. Collective.

    The first rank's `StokerError` is raised everywhere, and so is what the operating system refused, as a
    `StokerError`. A rank that failed in any other way raises its own error, and the others one that names it.
    """
    result, failure = attempt(action)
    raise_any(failure, from_everyone(described(failure), group))
    return result  # type: ignore[return-value]


def by_first(action: Callable[[], T], group: Group = None, own: Exception | None = None) -> T:
    """Run `action` on rank 0; what it returns every rank does, and when it fails every rank raises. Collective.

    `own` is why it will fail, on a rank that has told rank 0 of it before.
    """
    result: T | None = None
    if rank_and_ranks()[0] == 0:
        result, own = attempt(action)
    result, failed = from_first((result, described(own)), group)
    raise_any(own, [failed])
    return result  # type: ignore[return-value]


def attempt(action: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What `action` returns, or the error that it raises."""
    try:
        return action(), None
    except Exception as error:
        return None, error


def raise_any(own: Exception | None, everyones: Sequence[Failure]) -> None:
    """Raise as `together` does when one of `everyones` is a failure. `own` is this rank's."""
    failures = [found for found in everyones if found is not None]
    if not failures:
        return
    if own is not None and not isinstance(own, StokerError | OSError):
        raise own
    # An error Stoker understands says more than one it does not.
    kind, message = sorted(failures, key=lambda found: found[0] is None)[0]
    raise (_KINDS[kind] if kind is not None else StokerError)(message) from own


def described(error: Exception | None) -> Failure:
    """An error as it is told to other ranks."""
    if error is None:
        return None
    for number, kind in enumerate(_KINDS):
        if isinstance(error, kind):
            return number, str(error)
    rank, _ = rank_and_ranks()
    return None, f"rank {rank} failed: {type(error).__name__}: {error}"
