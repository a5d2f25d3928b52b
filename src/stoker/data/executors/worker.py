"""One worker process, from both of its ends.

A worker knows nothing of the parent but the job it is sent, ends by itself when the parent is gone however that
ended, and inherits no lock: it is forked by a nursery (`nursery.py`) where there can be one, or a fresh Python.
"""

from __future__ import annotations

import os
import pickle
import queue
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import stoker
from stoker.data.executors.executor import Job, Result, WorkerDied
from stoker.data.executors.idleness import Idleness, processor_seconds
from stoker.data.executors.nursery import ONE_THREAD_EACH, Nursery
from stoker.data.light_imports import leave_pandas_out
from stoker.errors import BadInput, StokerError
from stoker.process_settings import call_process, end_with_parent

OUT_OF_TIME = signal.SIGPROF
"""Ends a worker that spent more processor time on a piece of its job than it had set itself."""
_LOST = (EOFError, BrokenPipeError, ConnectionResetError, pickle.UnpicklingError, ValueError)


@dataclass(frozen=True)
class WorkerLimits:
    """What a worker may take."""

    memory: int
    """Bytes, for its data."""
    idle_seconds: float | None
    """By the clock, without using its processor while it has a job; None for ever."""


class Worker:
    """The parent's end."""

    def __init__(self, limits: WorkerLimits, home: Nursery | None = None) -> None:
        """Start it: forked in `home`, or as a fresh Python without one."""
        self._limits = limits
        self._process = _fresh(limits.memory) if home is None else home.start(limits.memory)

    def compute(self, function: Callable[[Job], Result], job: Job) -> tuple[Result, float]:
        """`function(job)` and the processor seconds it took.

        Raises what it raises if that is a `StokerError`, `RuntimeError` with the traceback of anything else, and
        `WorkerDied`, after which this worker is of no more use.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((function, job), self._process.stdin)
            self._process.stdin.flush()
            self._await_answer(self._process.stdout)
            kind, answer, seconds = pickle.load(self._process.stdout)
        except _LOST:
            raise WorkerDied(_cause(self._process.wait())) from None
        if kind == "memory":
            self.end()
            most = self._limits.memory
            raise WorkerDied(f"needed more memory than the {most / 2**30:.1f} GiB that a worker may take", most)
        if kind == "bad_input":
            raise BadInput(answer)
        if kind == "failed":
            raise StokerError(answer)
        if kind == "defect":
            raise RuntimeError(f"in a worker process:\n{answer}")
        return answer, seconds

    def _await_answer(self, answers: IO[bytes]) -> None:
        """Wait until an answer begins. Raises `WorkerDied` when the worker rests for longer than it may."""
        if (allowed := self._limits.idle_seconds) is None:
            return
        pid = self._process.pid
        idleness = Idleness(time.monotonic(), processor_seconds(pid), most_at_once=allowed / 2)
        waiting = select.poll()
        waiting.register(answers, select.POLLIN)
        while not waiting.poll(1000 * allowed / 10):
            if idleness.seconds(time.monotonic(), processor_seconds(pid)) >= allowed:
                self.end()
                raise WorkerDied(f"did nothing for {allowed:g} seconds")

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()


def _fresh(memory: int) -> subprocess.Popen[bytes]:
    home = str(Path(stoker.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from {__name__} import serve_afresh; serve_afresh()",
            str(memory),
            str(os.getpid()),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD_EACH, "PYTHONPATH": path},
    )


def _cause(code: int) -> str:
    if code == -OUT_OF_TIME:
        return "ran out of time"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def limit_next_piece(seconds: float) -> None:
    """Let this process be ended after so many seconds of processor time; 0 for never. Elsewhere than in a worker
    nothing is limited."""
    if _in_worker:
        signal.setitimer(signal.ITIMER_PROF, seconds)


_in_worker = False


def _answer(function: Callable[[Any], Any], job: Any) -> tuple[str, Any, float]:
    begun = time.process_time()
    try:
        return "done", function(job), time.process_time() - begun
    except BadInput as error:
        return "bad_input", str(error), 0.0
    except StokerError as error:
        return "failed", str(error), 0.0
    except MemoryError:
        return "memory", None, 0.0
    except Exception:
        return "defect", traceback.format_exc(), 0.0
    finally:
        limit_next_piece(0)


def _answer_jobs(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer jobs until the parent is gone; then stop at once, in the middle of a job too."""
    received: queue.SimpleQueue[tuple[Callable[[Any], Any], Any]] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                received.put(pickle.load(jobs))
        finally:
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    while True:
        pickle.dump(_answer(*received.get()), answers)
        answers.flush()


def _limit_memory(size: int) -> None:
    # Of the address space only what can be written to: libraries and mapped files are the machine's to manage.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a document that ends workers must not fill the disk


def serve_afresh() -> None:
    """The whole life of a worker that is a fresh Python, given its memory and the number of its parent."""
    memory, parent = map(int, sys.argv[1:])
    end_with_parent()  # the kernel does so even while one long call keeps Python's threads waiting
    if os.getppid() != parent:  # it ended while this one began, and a job of it may wait in the pipe
        sys.exit(1)
    serve(memory)


def serve(memory: int) -> None:
    """The whole life of a worker process, whose data may take so many bytes."""
    global _in_worker
    call_process("worker")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; Ctrl-C reaches the whole group
    _in_worker = True
    leave_pandas_out()
    _limit_memory(memory)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever a library prints must not mix with the answers
        with os.fdopen(0, "rb", closefd=False) as jobs:
            _answer_jobs(jobs, answers)
