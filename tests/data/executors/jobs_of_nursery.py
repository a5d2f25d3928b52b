"""Jobs that tell what process they are computed in."""

from __future__ import annotations

import os
import time

from stoker.errors import BadInput, StokerError
from tests.data.executors.test_executors import fatal_while_there

__all__ = ["BadInput", "StokerError", "fatal_while_there"]

MARK = "fresh"
"""What a parent changes, a forked worker sees changed."""


def mark(_: int) -> str:
    """Whether this process is forked from one that changed the mark."""
    return MARK


def process(_: int) -> int:
    """The number of this process."""
    time.sleep(0.05)
    return os.getpid()


def process_then_sleep(seconds: int) -> int:
    """The number of this process, later."""
    time.sleep(seconds)
    return os.getpid()


def variable(name: str) -> str | None:
    """Of the environment."""
    return os.environ.get(name)


def printed(text: str) -> None:
    """Something that must not mix with the answers."""
    print(text, flush=True)


def refused_or_asleep(number: int) -> None:
    """The first of them fails while the others are at it."""
    if number == 0:
        time.sleep(0.05)
        raise BadInput("refused")
    time.sleep(3600)
