"""Runs a function on several ranks: forked processes that meet over a file, each with one thread.

Nothing here needs a port, and nothing outlives the call.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# The parent must never have started a thread pool that its forks would find without threads.
torch.set_num_threads(1)

_GRACE_SECONDS = 5.0
"""How long the other ranks may take to end by themselves after one has failed."""

_WRITE_SECONDS = 0.5
"""How long a rank may take to write its stack."""


class RankFailed(AssertionError):
    """A rank ended without a result, or not in time."""


def run_ranks(function: Callable[..., Any], ranks: int, *args: Any, timeout: float = 60) -> list[Any]:
    """`function(rank, ranks, store, *args)` on every rank; the results in order of rank.

    `store` is where the ranks meet: give it to `init_process_group` or `join_world`. What a rank
    raises is raised here, with its traceback as a note; the rank that failed first counts. Results
    and exceptions are pickled. Ends its own processes, whatever happens.
    """
    context = get_context("fork")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes: list[ForkProcess] = []
        receivers: list[connection.Connection] = []
        try:
            for rank in range(ranks):
                receiver, sender = context.Pipe(duplex=False)
                arguments = (function, rank, ranks, folder, sender, args)
                process = context.Process(target=_rank_main, args=arguments, daemon=True)
                process.start()
                sender.close()
                processes.append(process)
                receivers.append(receiver)
            return _collect(receivers, processes, time.monotonic() + timeout)
        except BaseException as error:
            for note in _where_they_wait(processes, folder):
                error.add_note(note)
            raise
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()


def _collect(receivers: list[connection.Connection], processes: list[ForkProcess], deadline: float) -> list[Any]:
    waiting = dict(zip(receivers, range(len(receivers)), strict=True))
    results: dict[int, Any] = {}
    failure: BaseException | None = None
    while waiting:
        ready = connection.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for receiver in ready:
            assert isinstance(receiver, connection.Connection)
            rank = waiting.pop(receiver)
            try:
                result, error = pickle.loads(receiver.recv_bytes())
            except EOFError:
                processes[rank].join()
                result, error = None, RankFailed(f"rank {rank} ended with {processes[rank].exitcode} and no result")
            results[rank] = result
            if error is not None and failure is None:
                failure = error
                deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
    if failure is not None:
        raise failure
    if waiting:
        raise RankFailed(f"ranks {sorted(waiting.values())} did not end in time")
    return [results[rank] for rank in range(len(receivers))]


def _where_they_wait(processes: list[ForkProcess], folder: Path) -> list[str]:
    """The stack of each rank that has not ended: what the others of a collective that timed out waited for."""
    files = [_stack_file(folder, rank) for rank in range(len(processes))]
    asked = [rank for rank, process in enumerate(processes) if process.is_alive() and files[rank].exists()]
    for rank in asked:
        os.kill(processes[rank].pid or 0, signal.SIGUSR1)
    time.sleep(_WRITE_SECONDS if asked else 0)
    stacks = {rank: files[rank].read_text().partition(" in _rank_main")[0] for rank in asked}
    return [f"rank {rank} was at:\n{stack}" for rank, stack in stacks.items()]


def _stack_file(folder: Path, rank: int) -> Path:
    return folder / f"stack of rank {rank}"


def _rank_main(
    function: Callable[..., Any],
    rank: int,
    ranks: int,
    folder: Path,
    sender: connection.Connection,
    args: tuple[Any, ...],
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    stack = _stack_file(folder, rank).open("w")
    faulthandler.register(signal.SIGUSR1, stack)
    message: bytes
    try:
        store = dist.FileStore(str(folder / "store"), ranks)
        message = pickle.dumps((function(rank, ranks, store, *args), None))
    except BaseException as error:
        note = f"on rank {rank}:\n{traceback.format_exc()}"
        error.add_note(note)
        try:
            message = pickle.dumps((None, error))
            pickle.loads(message)
        except Exception:
            message = pickle.dumps((None, RankFailed(note)))
    sender.send_bytes(message)
    sender.close()
    os._exit(0)  # the parent's exit handlers are not this process's
