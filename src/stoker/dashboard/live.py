"""Telling browsers what is new: one poller a run, however many browsers look at it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from stoker.dashboard.doctor import Doctor, counts_of
from stoker.dashboard.summary import summary_of
from stoker.dashboard.watched import WatchedRun

POLL_SECONDS = 1.0
_QUIET_SECONDS = 15.0
"""A comment is sent when there is nothing to tell, so that a connection that is gone is noticed."""
_BACKLOG = 64
_log = logging.getLogger(__name__)


class Newsroom:
    """Polls the runs that somebody listens to, and hands everybody the same messages."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Queue[str]]] = {}
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self.doctor = Doctor(self._diagnosed)
        self.closing = asyncio.Event()

    @property
    def polled(self) -> int:
        """How many runs are polled."""
        return len(self._pollers)

    async def listen(self, runs: Sequence[WatchedRun]) -> AsyncIterator[str]:
        """Messages as server-sent events: first how each run stands, then what changes."""
        queue: asyncio.Queue[str] = asyncio.Queue(_BACKLOG)
        for run in runs:
            self._listeners.setdefault(run.id, set()).add(queue)
        try:
            for run in runs:
                yield await asyncio.to_thread(_message, run)
                if run.id not in self._pollers:
                    self._pollers[run.id] = asyncio.create_task(self._poll(run))
                self.doctor.ask(run)
            while not self.closing.is_set():
                try:
                    yield await asyncio.wait_for(queue.get(), _QUIET_SECONDS)
                except TimeoutError:
                    yield ": nothing new\n\n"
        finally:
            for run in runs:
                listeners = self._listeners.get(run.id, set())
                listeners.discard(queue)
                if not listeners and run.id in self._pollers:
                    self._pollers.pop(run.id).cancel()

    async def close(self) -> None:
        """End all polling, and what everybody listens to."""
        self.closing.set()
        for queue in {queue for queues in self._listeners.values() for queue in queues}:
            if not queue.full():
                queue.put_nowait(": the server ends\n\n")
        for task in self._pollers.values():
            task.cancel()
        await self.doctor.close()

    async def _poll(self, run: WatchedRun) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                if await asyncio.to_thread(run.refresh):
                    self._tell(run, await asyncio.to_thread(_message, run))
            except Exception as error:  # a folder that vanished, a disk that fails: it may come back
                _log.warning("%s cannot be read at the moment: %s", run.directory.path, error)
            self.doctor.ask(run)

    def _diagnosed(self, run: WatchedRun) -> None:
        counts = counts_of(self.doctor.of(run)["findings"])
        self._tell(run, _event("findings", {"id": run.id, "counts": counts}))

    def _tell(self, run: WatchedRun, message: str) -> None:
        for queue in self._listeners.get(run.id, ()):
            if queue.full():  # a browser that sleeps: only the newest counts
                queue.get_nowait()
            queue.put_nowait(message)


def _message(run: WatchedRun) -> str:
    return _event("run", summary_of(run))


def _event(name: str, content: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(content, ensure_ascii=False, allow_nan=False)}\n\n"
