"""Runs a function on several ranks: forked processes that meet over a file, each with one thread.

Nothing here needs a port, and nothing outlives the call.
"""

from __future__ import annotations

import os
import pickle
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


class RankFailed(AssertionError):
    """A rank ended without a result, or not in time."""


def run_ranks(function: Callable[..., Any], ranks: int, *args: Any, timeout: float = 60) -> list[Any]:
    """`function(rank, ranks, store, *args)` on every rank; the results in order of rank.

    `store` is where the ranks meet: give it to `init_process_group` or `join_world`. What a rank
    raises is raised here, with its traceback as a note; the rank that failed first counts. Results
    and exceptions are pickled. Ends its own processes, whatever happens.
    """
    context = get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes: list[ForkProcess] = []
        receivers: list[connection.Connection] = []
        try:
            for rank in range(ranks):
                receiver, sender = context.Pipe(duplex=False)
                arguments = (function, rank, ranks, Path(folder) / "store", sender, args)
                process = context.Process(target=_rank_main, args=arguments, daemon=True)
                process.start()
                sender.close()
                processes.append(process)
                receivers.append(receiver)
            return _collect(receivers, processes, time.monotonic() + timeout)
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


def _rank_main(
    function: Callable[..., Any],
    rank: int,
    ranks: int,
    store_file: Path,
    sender: connection.Connection,
    args: tuple[Any, ...],
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    message: bytes
    try:
        message = pickle.dumps((function(rank, ranks, dist.FileStore(str(store_file), ranks), *args), None))
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
