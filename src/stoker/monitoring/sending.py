"""Threads with a bounded queue each: what is slow, fails or hangs at the other end holds nobody up here."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
_log = logging.getLogger(__name__)
_LONGEST_PAUSE_SECONDS = 60.0


class Outbox(Generic[Item]):
    """Hands items to `deliver` on a thread, in order.

    `deliver` raises when it fails; it is tried again after 1, 2, 4 … seconds, `tries` times in all. When the queue
    is full the oldest item is given up. That something fails is said once, and once more when it works again.
    """

    def __init__(
        self,
        name: str,
        deliver: Callable[[Item], None],
        *,
        most: int,
        tries: int = 1,
        say: Callable[[str], None] = _log.warning,
        first_pause_seconds: float = 1.0,
    ) -> None:
        self.name = name
        self.given_up = 0
        """Items that were never delivered."""
        self._deliver = deliver
        self._most = most
        self._tries = tries
        self._say = say
        self._pause = first_pause_seconds
        self._items: deque[Item] = deque()
        self._condition = threading.Condition()
        self._busy = False
        self._closing = False
        self._in_trouble = False
        """It has been said that items do not arrive."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        with self._condition:
            return not self._items and not self._busy

    def put(self, item: Item) -> None:
        """Take `item` for delivery; never waits."""
        with self._condition:
            self._items.append(item)
            overflow = len(self._items) > self._most
            if overflow:
                self._items.popleft()
                self.given_up += 1
            self._condition.notify()
        if overflow:
            self._tell("does not keep up; what is oldest is left out")

    def close(self, until: float) -> bool:
        """Deliver what waits, at most until the monotonic clock says `until`; whether all of it was. A thread that
        hangs is left to die with the process."""
        with self._condition:
            while (self._items or self._busy) and (left := until - time.monotonic()) > 0:
                self._condition.wait(left)
            delivered = not self._items and not self._busy
            self._closing = True
            self._condition.notify_all()
        return delivered

    def _run(self) -> None:
        while True:
            with self._condition:
                self._busy = False
                self._condition.notify_all()
                while not self._items and not self._closing:
                    self._condition.wait()
                if self._closing:
                    return
                item = self._items.popleft()
                self._busy = True
            self._try(item)

    def _try(self, item: Item) -> None:
        for attempt in range(self._tries):
            try:
                self._deliver(item)
            except Exception as error:
                self._tell(f"fails: {error}")
                if attempt + 1 < self._tries:
                    with self._condition:
                        if self._closing:
                            break
                        self._condition.wait_for(
                            self._is_closing, min(_LONGEST_PAUSE_SECONDS, self._pause * 2**attempt)
                        )
            else:
                if self._in_trouble and not self._items:
                    self._in_trouble = False
                    self._say(f"{self.name} works again")
                return
        self.given_up += 1

    def _tell(self, trouble: str) -> None:
        with self._condition:
            told, self._in_trouble = self._in_trouble, True
        if not told:
            self._say(f"{self.name} {trouble}")

    def _is_closing(self) -> bool:
        return self._closing
