"""A thread that does one job after another, beside the training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Background:
    """Starts with the first job. Handing a job over never waits for the thread to run: starting a thread does."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        self._idle.set()

    def begin(self, job: Callable[[], None]) -> None:
        """Do `job`, which must raise nothing, after the ones before. Call `wait` first."""
        if self._thread is None:  # it ends with the process, if that ends before
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._idle.clear()
        self._jobs.put(job)

    def wait(self) -> None:
        """Wait until no job is left."""
        self._idle.wait()

    def close(self) -> None:
        """Wait, and end the thread."""
        self.wait()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                self._idle.set()
