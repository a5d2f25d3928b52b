"""Making the next items in a thread while the last one is used."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Ended:
    pass


class Prefetch(Iterator[Item], Generic[Key, Item]):
    """`make(key)` for each key in turn, made ahead by a daemon thread; at most `depth` items wait.

    An error in `make` is raised where its item is asked for. There is no state to save: the
    items are a function of the keys. Ends with `close()`, with a `with` block, or when dropped.
    """

    def __init__(self, make: Callable[[Key], Item], keys: Iterable[Key], depth: int = 2) -> None:
        self._ready: queue.SimpleQueue[Item | _Failed | _Ended] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._over, self._depth = False, depth
        stopped = threading.Event()
        # The thread must not hold `self`, or an iterator that nobody closes would never be dropped.
        self._thread = threading.Thread(
            target=_produce, args=(make, iter(keys), self._room, self._ready, stopped), name="prefetch", daemon=True
        )
        self._stop = weakref.finalize(self, _stop, stopped, self._room)
        self._thread.start()

    def __next__(self) -> Item:
        if self._over:
            raise StopIteration
        item = self._ready.get()
        if isinstance(item, _Ended):
            self._over = True
            raise StopIteration
        if isinstance(item, _Failed):
            self._over = True
            raise item.error
        self._room.release()
        return item

    @property
    def waiting(self) -> int:
        """How many items lie ready, at most `depth`; behind the last one the end counts as one."""
        return min(self._depth, self._ready.qsize())

    def close(self) -> None:
        """Stop making items and wait for the thread to end."""
        self._over = True
        self._stop()
        self._thread.join()

    def __enter__(self) -> Prefetch[Key, Item]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _stop(stopped: threading.Event, room: threading.Semaphore) -> None:
    stopped.set()
    room.release()


def _produce(
    make: Callable[[Key], Item],
    keys: Iterator[Key],
    room: threading.Semaphore,
    ready: queue.SimpleQueue[Item | _Failed | _Ended],
    stopped: threading.Event,
) -> None:
    try:
        for key in keys:
            room.acquire()
            if stopped.is_set():
                return
            ready.put(make(key))
        ready.put(_Ended())
    except BaseException as error:
        ready.put(_Failed(error))
