"""Processes that stay, and take on one layout after another."""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from stoker.child_processes import die_with_parent, fork_server
from stoker.errors import StokerError
from stoker.process_settings import call_rank
from stoker.verification.work import Place

Work = TypeVar("Work")
Found = TypeVar("Found")
_GRACE_SECONDS = 3.0
"""How long the other ranks may take to end by themselves after one has failed."""
_LEAVE_SECONDS = 30.0
"""How much longer than a collective a rank may take to say that it took too long."""


class WorkersFailed(StokerError):
    """A rank raised, died or did not answer in time. Says which, and why."""


@dataclass
class _Worker:
    process: ForkServerProcess
    messages: connection.Connection


class Workers:
    """Ranks that are forked from a process which has imported everything, and kept from layout to layout."""

    def __init__(self, timeout_seconds: float, most_ranks: int) -> None:
        """On CUDA devices if there are as many as `most_ranks`, so that all layouts run on the same kind."""
        self._timeout = timeout_seconds
        self._on_cuda = torch.cuda.is_available() and torch.cuda.device_count() >= most_ranks
        self._workers: dict[int, _Worker] = {}
        self._numbers = itertools.count()

    def __enter__(self) -> Workers:
        self._context = fork_server(__name__)
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(list(self._workers))

    def run(self, function: Callable[[Work, Place], Found], work: Work, ranks: int) -> list[Found]:
        """What `function` gives on each of `ranks`. Raises `WorkersFailed`; its workers are then replaced."""
        number = next(self._numbers)
        own = list(range(ranks))
        for rank in own:
            if rank not in self._workers:
                self._workers[rank] = self._started()
            device = torch.device("cuda", rank) if self._on_cuda else torch.device("cpu")
            self._workers[rank].messages.send((function, work, number, rank, device, self._timeout))
        try:
            return self._collect(own)
        except BaseException:
            self._end(own)
            raise

    def _collect(self, ranks: Sequence[int]) -> list[Any]:
        results: dict[int, Any] = {}
        failures: list[tuple[float, str]] = []
        waiting = {self._workers[rank].messages: rank for rank in ranks}
        deadline = time.monotonic() + self._timeout + _LEAVE_SECONDS
        while waiting:
            ready = connection.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for one in ready:
                assert isinstance(one, connection.Connection)
                rank = waiting.pop(one)
                when, failure, result = self._received(rank, one)
                results[rank] = result
                if failure is not None:
                    failures.append((when, f"rank {rank}: {failure}"))
                    deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
        if failures:
            raise WorkersFailed(min(failures)[1])
        if waiting:
            late = ", ".join(map(str, sorted(waiting.values())))
            raise WorkersFailed(f"no answer from rank {late} after {self._timeout:.0f} s")
        return [results[rank] for rank in ranks]

    def _received(self, rank: int, messages: connection.Connection) -> tuple[float, str | None, Any]:
        try:
            when, failure, result = messages.recv()
        except EOFError:
            process = self._workers[rank].process
            process.join(_GRACE_SECONDS)
            return 0.0, f"the process ended with {process.exitcode}", None
        return when, failure, result

    def _started(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_worker_main, args=(theirs, self._store.port), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _end(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            worker = self._workers.pop(rank)
            worker.process.kill()
            worker.process.join()
            worker.messages.close()


def _worker_main(messages: connection.Connection, port: int) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False)
    while True:
        try:
            function, work, number, rank, device, timeout = messages.recv()
        except EOFError:
            return
        call_rank(rank)
        failure, result = None, None
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)
            result = function(work, Place(rank, PrefixStore(f"layout-{number}", store), device, timeout))
        except BaseException as error:
            failure = _in_words(error)
        messages.send((time.time(), failure, result))


def _in_words(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/stoker/" in frame.filename]
    where = f" at {frames[-1].filename.rpartition('/stoker/')[2]}:{frames[-1].lineno}" if frames else ""
    words = str(error).strip().split("\n")[0]
    return words if isinstance(error, StokerError) else f"{type(error).__name__}{where}: {words}"
