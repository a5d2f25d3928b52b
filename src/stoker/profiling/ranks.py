"""Starts the ranks that are profiled, as processes of this machine, or takes part where a launcher started them."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.child_processes import die_with_parent, fork_server
from stoker.errors import EXIT_FAILED, StokerError
from stoker.profiling.recording import Recorded, Recording, Steps, set_up_environment
from stoker.training.rank import Job, train_rank
from stoker.training.signals import StopRequest

_GRACE_SECONDS = 5.0
"""How long the other ranks may take to end after one of them has failed."""
Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Profiled:
    """What is to be profiled; the same on every rank."""

    job: Job
    steps: Steps
    folder: Path
    """Where each rank leaves its trace."""


def record_as_rank(work: Profiled, rank: int, local_rank: int, local_ranks: int, store: Any, say: Say) -> None:
    """Train as one rank up to the last step that is wanted, and leave a trace. Collective over all ranks."""
    recording = Recording(work.steps, work.folder, say)
    try:
        train_rank(
            work.job,
            rank,
            local_rank,
            local_ranks,
            store,
            StopRequest(),
            lambda message: None,
            when_built=recording.attach,
        )
    except Recorded:
        return
    raise StokerError(
        f"rank {rank}: the run ended before step {work.steps.until} was profiled: it went back, or stopped"
    )


def record_here(work: Profiled, say: Say) -> None:
    """Have every rank of the job's layout leave its trace. Raises the error of the rank that failed first."""
    set_up_environment()
    context = fork_server("stoker.profiling.ranks")
    ranks = work.job.recipe.layout.world_size
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: list[ForkServerProcess] = []
    inboxes: list[connection.Connection] = []
    try:
        for rank in range(ranks):
            inbox, sender = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main, args=(work, rank, store.port, sender), name=f"rank {rank}")
            try:
                process.start()
            except OSError as error:
                raise StokerError(
                    f"rank {rank} of {ranks} could not be started: {error.strerror or error}"
                ) from None
            sender.close()
            processes.append(process)
            inboxes.append(inbox)
        _await_all(processes, inboxes, say)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _await_all(processes: list[ForkServerProcess], inboxes: list[connection.Connection], say: Say) -> None:
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
            else:
                say(value)
        if failures:
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
    if failures:
        # What others lose by it, their connection, is not the cause.
        _, _, message, code = min(failures)
        error = StokerError(message)
        error.exit_code = code
        raise error


def _rank_main(work: Profiled, rank: int, port: int, sender: connection.Connection) -> None:
    die_with_parent()
    say: Say = (lambda message: sender.send(("said", message))) if rank == 0 else _tell_nobody
    ranks = work.job.recipe.layout.world_size
    try:
        timeout = datetime.timedelta(seconds=work.job.recipe.training.timeout_seconds)
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timeout) if ranks > 1 else None
        record_as_rank(work, rank, rank, ranks, store, say)
    except BaseException as error:
        understood = isinstance(error, StokerError)
        lines = str(error).splitlines()
        message = str(error) if understood else f"rank {rank} failed: {type(error).__name__}: {(lines or [''])[0]}"
        sender.send(("failure", (not understood, time.time(), message, getattr(error, "exit_code", EXIT_FAILED))))
        sender.close()
        os._exit(EXIT_FAILED)
    sender.close()
    os._exit(0)


def _tell_nobody(message: dict[str, Any]) -> None:
    pass
