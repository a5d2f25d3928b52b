"""How long a small message between machines takes: to the store where the ranks met and back, now and then.

Over a connection and in a thread of its own: nothing of the training waits for it, whatever becomes of the network.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol, Self

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore, distributed_c10d  # type: ignore[attr-defined]

_MESSAGES = 8
"""The quickest counts: what this process's other threads add is not the network's."""
_OUTSTANDING_SECONDS = 1.0
"""An answer that has not come for so long is told of while it is still waited for."""
_KEY = ["network latency"]
"""Nobody sets it."""


class Messages(Protocol):
    """What of a store is needed."""

    def check(self, keys: list[str], /) -> bool:
        """Ask whether keys are there."""


class NetworkLatency:
    """Sends a few messages every so many seconds until it is closed."""

    def __init__(self, store: Messages, seconds: float) -> None:
        self._store, self._pause = store, seconds
        self._newest: float | None = None
        self._sent: float | None = None
        """When the message was sent whose answer is waited for."""
        self._over = threading.Event()
        # Not waited for at the end: an answer over a network that is cut never comes.
        threading.Thread(target=self._run, name="network latency", daemon=True).start()

    @classmethod
    def between_machines(
        cls,
        store: dist.Store | None,  # type: ignore[name-defined]
        seconds: float,
    ) -> Self | None:
        """To the machine that has `store`, or else the store of this process's group; None where it is not one that
        other machines can reach, or `seconds` is 0."""
        if seconds <= 0:
            return None
        try:
            known = store if store is not None else distributed_c10d._get_default_store()
            while isinstance(known, PrefixStore):
                known = known.underlying_store
            return cls(known.clone(), seconds) if isinstance(known, TCPStore) else None  # type: ignore[attr-defined]
        except (RuntimeError, ValueError):  # no group, or nobody answers there
            return None

    def seconds(self) -> float | None:
        """There and back; None before the first answer."""
        sent = self._sent
        waited = 0.0 if sent is None else time.monotonic() - sent
        return max(waited, self._newest or 0.0) if waited > _OUTSTANDING_SECONDS else self._newest

    def close(self) -> None:
        """Send no more."""
        self._over.set()

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):  # the run ends, and its store with it
            while not self._over.is_set():
                self._newest = min(self._once() for _ in range(_MESSAGES))
                self._over.wait(self._pause)

    def _once(self) -> float:
        self._sent = begun = time.monotonic()
        self._store.check(_KEY)
        self._sent = None
        return time.monotonic() - begun
