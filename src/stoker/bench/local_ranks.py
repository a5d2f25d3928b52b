"""Starts ranks that measure, as processes on this machine."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.bench.measurement import Advance, measure
from stoker.bench.request import Request, launched_ranks
from stoker.bench.results import Measurement
from stoker.child_processes import die_with_parent, fork_server
from stoker.errors import EXIT_FAILED, StokerError

_GRACE_SECONDS = 5.0
"""How long the other ranks may take to end after one of them failed."""


def measure_everywhere(request: Request, advance: Advance) -> Measurement:
    """Take part in the measurement where a launcher started this process; otherwise start the ranks here."""
    if launched_ranks() is not None:
        rank = int(os.environ["RANK"])
        return measure(request, rank, int(os.environ.get("LOCAL_RANK", rank)), None, advance)
    return _on_this_machine(request, advance)


def _on_this_machine(request: Request, advance: Advance) -> Measurement:
    """Raises the error of the rank that failed first. No rank outlives the call."""
    context = fork_server("stoker.bench.local_ranks")
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: list[ForkServerProcess] = []
    inboxes: list[connection.Connection] = []
    try:
        for rank in range(request.topology.ranks):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main, args=(request, rank, store.port, sender), daemon=True)
            process.start()
            sender.close()
            processes.append(process)
            inboxes.append(receiver)
        return _await_result(processes, inboxes, advance)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _await_result(
    processes: list[ForkServerProcess], inboxes: list[connection.Connection], advance: Advance
) -> Measurement:
    result: Measurement | None = None
    failures: list[tuple[bool, float, str, int]] = []
    waiting, deadline = dict(zip(inboxes, range(len(inboxes)), strict=True)), float("inf")
    while waiting and time.monotonic() < deadline:
        for inbox in connection.wait(list(waiting), timeout=0.5):
            assert isinstance(inbox, connection.Connection)
            try:
                kind, value = inbox.recv()
            except EOFError:
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
                advance(value)
        if failures:
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
    if failures:
        # A rank whose peer is gone loses its connection: that is not the cause.
        _, _, message, code = min(failures)
        error = StokerError(message)
        error.exit_code = code
        raise error
    assert result is not None, "rank 0 ended well and gave no result"
    return result


def _rank_main(request: Request, rank: int, port: int, sender: connection.Connection) -> None:
    die_with_parent()
    send: Callable[[Any], None] = sender.send if rank == 0 else _tell_nobody
    try:
        timeout = datetime.timedelta(seconds=request.timeout_seconds)
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
        send(("result", measure(request, rank, rank, store, lambda text: send(("progress", text)))))
    except BaseException as error:
        understood = isinstance(error, StokerError)
        lines = str(error).splitlines()
        message = str(error) if understood else f"rank {rank} failed: {type(error).__name__}: {(lines or [''])[0]}"
        sender.send(("failure", (not understood, time.time(), message, getattr(error, "exit_code", EXIT_FAILED))))
        sender.close()
        os._exit(EXIT_FAILED)


def _tell_nobody(message: Any) -> None:
    pass
