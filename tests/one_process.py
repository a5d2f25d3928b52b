"""A single worker that is no process of its own: quick to start, and what a test changes is changed for it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stoker.data.executors import Executor
from stoker.data.executors.local import Local


class Here:
    """Computes jobs in this process."""

    cpu_seconds = 0.0

    def in_order(self, function: Callable[[Any], Any], jobs: Iterable[Any], *_: Any, **__: Any) -> Iterator[Any]:
        return map(function, jobs)


def local_executor(workers: int | None, *limits: Any) -> Executor:
    """What `Local` is, but for `data.workers: 1`."""
    return Here() if workers == 1 else Local(workers, *limits)
