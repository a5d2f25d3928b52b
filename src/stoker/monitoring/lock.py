"""Only one monitor of a run tells people."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from stoker.errors import BadInput, StokerError
from stoker.record import MONITOR
from stoker.record.segments import rank_folder
from stoker.run_directory import RunDirectory, locked_folder


@contextmanager
def held(run: RunDirectory) -> Iterator[bool]:
    """Hold the place of the run's monitor until the block ends; yields whether its folder can be written.

    Raises `BadInput` when another monitor holds it, naming host and process.
    """
    folder = rank_folder(run.record, MONITOR)
    lock = locked_folder(folder, folder / "lock", "monitor")
    try:
        lock.__enter__()
    except BadInput:
        raise
    except (StokerError, OSError):  # a folder that is read-only: look who has it without writing
        with _held_unwritten(run):
            yield False
        return
    try:
        yield True
    finally:
        lock.__exit__(None, None, None)


@contextmanager
def _held_unwritten(run: RunDirectory) -> Iterator[None]:
    path = rank_folder(run.record, MONITOR) / "lock"
    descriptor = os.open(path if path.is_file() else run.recipe, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"{run.path} is watched by another monitor; stop it first") from None
        yield
    finally:
        os.close(descriptor)
