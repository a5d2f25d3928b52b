"""Starts ranks as processes on this machine, for a verb that waits for them: measurements and profiles."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.child_processes import die_with_parent, fork_server
from stoker.errors import EXIT_FAILED, StokerError
from stoker.process_settings import call_rank

_GRACE_SECONDS = 5.0
"""How long the other ranks may take to end after one of them has failed."""
Say = Callable[[Any], None]
RankMain = Callable[[Any, int, TCPStore, Say], Any]
"""Given the work, the rank, a store that all ranks reach, and how rank 0 tells how it gets on; a function of a
module. What it returns on rank 0 is the result."""


def run_local_ranks(main: RankMain, work: Any, ranks: int, timeout_seconds: float, hear: Say) -> Any:
    """The result of `main` on rank 0 of so many `ranks`; what it says meanwhile `hear` is given.

    Raises the error of the rank that failed first, or that could not be started. No rank outlives the call.
    """
    context = fork_server(main.__module__)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: list[ForkServerProcess] = []
    inboxes: list[connection.Connection] = []
    try:
        for rank in range(ranks):
            inbox, sender = context.Pipe(duplex=False)
            given = (main, work, rank, store.port, timeout_seconds, sender)
            process = context.Process(target=_rank_main, args=given, name=f"rank {rank}", daemon=True)
            try:
                process.start()
            except OSError as error:
                reason = error.strerror or error
                raise StokerError(f"rank {rank} of {ranks} could not be started: {reason}") from None
            sender.close()
            processes.append(process)
            inboxes.append(inbox)
        return _await_all(processes, inboxes, hear)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _await_all(processes: list[ForkServerProcess], inboxes: list[connection.Connection], hear: Say) -> Any:
    result: Any = None
    failures: list[tuple[bool, float, str, int]] = []
    waiting, deadline = dict(zip(inboxes, range(len(inboxes)), strict=True)), float("inf")
    while waiting and time.monotonic() < deadline:
        for inbox in connection.wait(list(waiting), timeout=0.5):
            assert isinstance(inbox, connection.Connection)
            try:
                kind, value = inbox.recv()
            except (EOFError, ConnectionError):
                rank = waiting.pop(inbox)
                processes[rank].join()
                if processes[rank].exitcode:
                    text = f"rank {rank} ended with exit code {processes[rank].exitcode} and no message"
                    failures.append((True, time.time(), text, EXIT_FAILED))
                continue
            if kind == "failure":
                failures.append(value)
                waiting.pop(inbox)
            elif kind == "result":
                result = value
            else:
                hear(value)
        if failures:
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
    if failures:
        # A rank whose peer is gone loses its connection: that is not the cause.
        _, _, message, code = min(failures)
        error = StokerError(message)
        error.exit_code = code
        raise error
    return result


def _rank_main(
    main: RankMain, work: Any, rank: int, port: int, timeout_seconds: float, sender: connection.Connection
) -> None:
    die_with_parent()
    call_rank(rank)
    try:
        timeout = datetime.timedelta(seconds=timeout_seconds)
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
        say: Say = (lambda message: sender.send(("said", message))) if rank == 0 else _tell_nobody
        result = main(work, rank, store, say)
        if rank == 0:
            sender.send(("result", result))
    except BaseException as error:
        understood = isinstance(error, StokerError)
        lines = str(error).splitlines()
        message = str(error) if understood else f"rank {rank} failed: {type(error).__name__}: {(lines or [''])[0]}"
        sender.send(("failure", (not understood, time.time(), message, getattr(error, "exit_code", EXIT_FAILED))))
        sender.close()
        os._exit(EXIT_FAILED)
    sender.close()
    os._exit(0)


def _tell_nobody(message: Any) -> None:
    pass
