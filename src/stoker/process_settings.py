"""What the kernel is told of this process: what it is called, and to end it with the one that started it."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_LONGEST_NAME = 15
"""Bytes of a name that Linux keeps."""


def end_with_parent() -> None:
    """Let the kernel end this process with the thread that started it, whatever this one is doing then; only
    Linux does it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def call_process(what: str) -> None:
    """Let `top`, `ps -e` and `/proc/PID/comm` show `stoker WHAT`, of which 15 characters are shown; only on Linux.

    To be called by the main thread; threads that it starts afterwards are called the same.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"stoker {what}".encode()[:_LONGEST_NAME])


def call_rank(rank: int) -> None:
    """Let this process be shown as that of `rank`, with a number that is whole however large it is."""
    call_process(f"rank {rank}" if rank < 1000 else f"r{rank}")
