"""A monitor beside a command that has no loop of its own to look after it in: a rank that a launcher started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from stoker.errors import StokerError
from stoker.monitoring.beside import LAST_LOOK_SECONDS, Beside
from stoker.recipe import Recipe
from stoker.record import SUPERVISOR, RecordWriter
from stoker.run_directory import RunDirectory

_LOOK_SECONDS = 0.5


@contextmanager
def monitored(run: RunDirectory, recipe: Recipe, attempt: int, say: Callable[[str], None]) -> Iterator[None]:
    """Have the run watched until the block ends, and then for the seconds that the monitor needs for its last look.

    Nothing the block does waits for it. Should it die, that is recorded under `attempt`.
    """
    over = threading.Event()

    def died(how: str) -> None:
        row = {"step": None, "event": "monitor_died", "attempt": attempt, "time": time.time()}
        with suppress(StokerError, OSError):  # a disk that is full has been told of by the ranks
            writer = RecordWriter(run.record, SUPERVISOR)
            writer.append("event", {**row, "detail": {"message": how}})
            writer.close()

    monitor = Beside(run, recipe, say, died)

    def look_after() -> None:
        while not over.wait(_LOOK_SECONDS):
            monitor.look_after()

    thread = threading.Thread(target=look_after, name="monitor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        monitor.end(LAST_LOOK_SECONDS)
