"""Starts the ranks of a run as processes on this machine, and answers for how they end.

Ranks are forked from a server process that has imported everything and computed nothing:
starting eight takes seconds, and none inherits a thread pool in the middle of its work.
"""

from __future__ import annotations

import datetime
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection, forkserver, get_context, parent_process, resource_tracker
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.errors import EXIT_FAILED, NonFinite, OutOfMemory, StokerError, Terminated
from stoker.run_directory import RunDirectory
from stoker.training.out_of_memory import oom_kills
from stoker.training.rank import Job, train_rank
from stoker.training.signals import StopRequest, held_back, let_through, listening

_GRACE_SECONDS = 10.0
"""How long ranks may take to end by themselves after one of them failed."""


def run_ranks(job: Job, stop: StopRequest, lock: int, report: Callable[[dict[str, Any]], None]) -> None:
    """Run every rank of `job` on this machine until all have ended.

    What rank 0 reports is passed to `report`. Raises the error of the rank that failed first,
    and then ends the others; `Terminated` when asked to stop before there was anything to report.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["stoker.training.local_ranks"])
    _start_server()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks: list[_Rank] = []
    try:
        for rank in range(job.recipe.layout.world_size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank_main, args=(job, rank, store.port, sender, _Inherited(lock)), daemon=True
            )
            _start(process)
            sender.close()
            ranks.append(_Rank(process, receiver))
            if stop.asked:
                raise _stopped_early()
        _watch(ranks, stop, report)
    finally:
        for rank_ in ranks:
            if rank_.process.is_alive():
                rank_.process.kill()
            rank_.process.join()


def _start_server() -> None:
    """Start the process that ranks are forked from, deaf to signals until it and each rank can answer them.

    Ctrl-C and what a scheduler sends reach every process of the group, also those still importing.
    """
    resource_tracker.ensure_running()  # by itself it would let signals through again
    with held_back():
        forkserver.ensure_running()


def _start(process: ForkServerProcess) -> None:
    try:
        process.start()
    except (EOFError, ConnectionError) as error:
        raise StokerError(
            "the process that starts the ranks died; often that is the system running out of memory. Nothing saved "
            "is lost: the same command goes on from the newest checkpoint."
        ) from error


def _stopped_early() -> Terminated:
    return Terminated("asked to stop while the ranks were starting")


class _Rank:
    def __init__(self, process: ForkServerProcess, messages: connection.Connection) -> None:
        self.process = process
        self.messages = messages
        self.failure: dict[str, Any] | None = None
        self.listening = True

    def receive(self) -> dict[str, Any] | None:
        try:
            message: dict[str, Any] = self.messages.recv()
        except EOFError:
            self.listening = False
            return None
        if message["kind"] == "failure":
            self.failure = message
            return None
        return message


def _watch(ranks: list[_Rank], stop: StopRequest, report: Callable[[dict[str, Any]], None]) -> None:
    killed_before = oom_kills()
    forwarded, heard, deadline = False, False, None
    while any(rank.process.is_alive() or rank.listening for rank in ranks):
        waiting = [rank.messages for rank in ranks if rank.listening]
        waiting += [rank.process.sentinel for rank in ranks if rank.process.is_alive()]  # type: ignore[misc]
        ready = connection.wait(waiting, timeout=0.2)
        for rank in ranks:
            if rank.messages in ready and (message := rank.receive()) is not None:
                heard = True
                report(message)
        failed = [rank for rank in ranks if rank.failure or (rank.process.exitcode or 0) != 0]
        if stop.asked and not heard and not failed:
            raise _stopped_early()
        if stop.asked and not forwarded:
            forwarded = True
            for rank in ranks:
                if rank.process.is_alive() and rank.process.pid is not None:
                    os.kill(rank.process.pid, signal.SIGTERM)
        if failed and deadline is None:
            deadline = time.monotonic() + _GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            break
    _raise_first_failure(ranks, killed_before)


def _raise_first_failure(ranks: list[_Rank], killed_before: int) -> None:
    """A rank that was killed says nothing and is the cause; the others only lost their peer. After that an
    error Stoker understands says more than a broken connection, and an earlier one more than a later."""
    for number, rank in enumerate(ranks):
        code = rank.process.exitcode
        if code is not None and code < 0 and rank.failure is None:
            name = signal.Signals(-code).name
            saved = "Nothing saved is lost: the same command goes on from the newest checkpoint."
            if name == "SIGKILL" and oom_kills() > killed_before:
                raise OutOfMemory(f"rank {number} was killed by the system, which ran out of memory. {saved}")
            hint = "; often that is the system running out of memory" if name == "SIGKILL" else ""
            raise StokerError(f"rank {number} was killed by {name}{hint}. {saved}")
    failures = sorted(
        (rank.failure for rank in ranks if rank.failure),
        key=lambda failure: (not failure["understood"], failure["time"]),
    )
    if not failures:
        for number, rank in enumerate(ranks):
            if rank.process.exitcode:
                raise StokerError(f"rank {number} ended with exit code {rank.process.exitcode} and no message")
        return
    first = failures[0]
    error = first["error"](first["message"])
    error.exit_code = first["exit_code"]
    if isinstance(error, OutOfMemory):
        error.held_bytes = first["held_bytes"]
    raise error


class _Inherited:
    """A file descriptor that a rank has from its start.

    Handed over beforehand, so that no rank asks this process for it later, which may be ending it then.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _number_here, (DupFd(self.number),)


def _number_here(handed_over: Any) -> int:
    return int(handed_over.detach())


def _rank_main(job: Job, rank: int, port: int, sender: connection.Connection, lock: int) -> None:
    """`lock` is held open: the run stays locked while any rank lives."""
    _end_with_parent()
    layout, timeout = job.recipe.layout, datetime.timedelta(seconds=job.recipe.training.timeout_seconds)
    send = sender.send if rank == 0 else _tell_nobody
    try:
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
        with listening() as stop:
            let_through(signal.SIGTERM)  # Ctrl-C is the launcher's to judge, which passes it on as SIGTERM
            train_rank(job, rank, rank, layout.world_size, store, stop, send)
    except BaseException as error:
        sender.send(_as_failure(error, rank, RunDirectory(job.run)))
        sender.close()
        os._exit(getattr(error, "exit_code", EXIT_FAILED))


def _tell_nobody(message: dict[str, Any]) -> None:
    pass


def _as_failure(error: BaseException, rank: int, run: RunDirectory) -> dict[str, Any]:
    understood = isinstance(error, StokerError)
    message = str(error)
    if not understood:
        path = run.record / f"rank-{rank:05d}" / "traceback.txt"
        message = f"rank {rank} failed: {type(error).__name__}: {message.splitlines()[0] if message else ''}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            message += f" (see {path})"
        except OSError as disk:  # what went wrong must be told even when nothing can be written
            message += f" ({path} could not be written: {disk.strerror})"
    kinds: tuple[type[StokerError], ...] = (NonFinite, Terminated, OutOfMemory)
    return {
        "kind": "failure",
        "rank": rank,
        "time": time.time(),
        "understood": understood,
        "error": next((kind for kind in kinds if isinstance(error, kind)), StokerError),
        "exit_code": getattr(error, "exit_code", EXIT_FAILED),
        "message": message,
        "held_bytes": getattr(error, "held_bytes", 0),
    }


def _end_with_parent() -> None:
    """A rank whose launcher is gone must not go on alone."""
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(EXIT_FAILED)

    threading.Thread(target=wait, daemon=True, name="end-with-parent").start()
