"""Whether the node that leads still does: one that was stopped, or cut off from the disk, may have been replaced.

The lock on the run's folder is held for as long as a process lives, also one that is stopped, or whose machine is.
So a leader shows on the disk that it is there, and one that has not for a while is replaced, with its lock. When it
is there again it finds out before it does anything, and follows. Its ranks wait meanwhile: see `lease`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from stoker.errors import BadInput, StokerError
from stoker.recovery.nodes import read_notice
from stoker.run_directory import RunDirectory, locked_folder

_CONFIRM_SECONDS = 1.0


class Replaced(StokerError):
    """Another node leads this run now."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node} leads now")
        self.node = node


class Tenure:
    """Of the leader that wrote the notice with `token` and holds `lock`."""

    def __init__(self, run: RunDirectory, token: str, lock: int) -> None:
        self._run = run
        self._token = token
        self._lock = lock
        self._confirmed = float("-inf")

    def confirm(self) -> None:
        """To be called all the time: show that the leader is there. Raises `Replaced` when another leads."""
        if time.monotonic() - self._confirmed < _CONFIRM_SECONDS:
            return
        notice = read_notice(self._run)
        if notice is not None and notice.token != self._token:
            raise Replaced(notice.node)
        with contextlib.suppress(OSError):  # then others see no sign, and may take over
            os.utime(self._lock)
        self._confirmed = time.monotonic()


Sign = tuple[int, int]
"""What a leader shows: number and time of the lock file."""


def sign_of(run: RunDirectory) -> Sign:
    """What the leader has shown last. It is compared with an earlier one only, so clocks need not agree."""
    try:
        descriptor = os.open(
            run.lock_file, os.O_RDONLY | os.O_CLOEXEC
        )  # opening asks a network file system's server
    except OSError:
        return 0, 0
    try:
        found = os.fstat(descriptor)
        return found.st_ino, found.st_mtime_ns
    finally:
        os.close(descriptor)


def require_in_place(run: RunDirectory, lock: int) -> None:
    """Raise `Replaced` when `lock` was the run's, and another has been put in its place."""
    if not is_in_place(run, lock):
        notice = read_notice(run)
        raise Replaced("?" if notice is None else notice.node)


def is_in_place(run: RunDirectory, lock: int) -> bool:
    """Whether `lock`, which is held, is the run's lock still and was not replaced."""
    return os.fstat(lock).st_ino == sign_of(run)[0]


@contextmanager
def taken_over(run: RunDirectory, seen: Sign) -> Iterator[int]:
    """Hold the folder `run` in place of a leader that has shown nothing since `seen`; yields the lock's descriptor.

    Raises `BadInput` when it has shown something after all, or another node is taking over.
    """
    ours = run.path / f"{run.lock_file.name}.{os.getpid()}"
    with ExitStack() as holding:
        with locked_folder(run.path, run.path / f"{run.lock_file.name}.taking-over", "takes over"):
            if sign_of(run) != seen:
                raise BadInput(f"{run.path} is in use after all")
            lock = holding.enter_context(locked_folder(run.path, ours, "train"))
            os.replace(ours, run.lock_file)
        yield lock
