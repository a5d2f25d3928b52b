"""Processes that end with the one that started them, however that ends, and that start without a signal lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, forkserver, get_context, resource_tracker
from multiprocessing.context import ForkServerContext
from multiprocessing.process import parent_process

from stoker.process_settings import end_with_parent

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def die_with_parent(*, by_thread: bool = True) -> None:
    """See to it that this process ends when the one that started it does.

    Linux does it, also to a process that is stopped; elsewhere a thread does, unless this process may have none.
    """
    end_with_parent()
    parent = parent_process()
    if parent is None:
        return
    if not parent.is_alive():
        os._exit(1)
    if by_thread:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True, name="end-with-parent").start()


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def fork_server(*preloaded: str) -> ForkServerContext:
    """Processes forked from a server that has imported the modules `preloaded` and computed nothing.

    It is deaf to signals that end a process until it and each child can answer them: Ctrl-C and what a scheduler
    sends reach every process of the group, also those still importing.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(list(preloaded))
    resource_tracker.ensure_running()  # by itself it would let signals through again
    with held_back():
        forkserver.ensure_running()
    return context


@contextmanager
def held_back() -> Iterator[None]:
    """Let signals that end a process wait until the block ends; processes started in it go on holding them back."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
