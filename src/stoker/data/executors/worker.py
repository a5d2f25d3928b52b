"""One worker process, from both of its ends.

A worker is a fresh Python that knows nothing of the parent but the job it is sent, ends by itself when
the parent is gone however that ended, and inherits no lock.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import stoker
from stoker.data.executors.executor import Job, Result, WorkerDied
from stoker.errors import BadInput, StokerError

_END_WITH_PARENT = 1
"""`PR_SET_PDEATHSIG` of Linux's prctl."""
OUT_OF_TIME = signal.SIGPROF
"""Ends a worker that spent more processor time on a piece of its job than it had set itself."""
_LOST = (EOFError, BrokenPipeError, ConnectionResetError, pickle.UnpicklingError, ValueError)


class Worker:
    """The parent's end. `memory` is in bytes: what the worker's data may take."""

    def __init__(self, memory: int) -> None:
        environment = dict(os.environ)
        home = str(Path(stoker.__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [home, environment.get("PYTHONPATH")]))
        environment.update(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
        self._memory = memory
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()", str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

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
            kind, answer, seconds = pickle.load(self._process.stdout)
        except _LOST:
            raise WorkerDied(_cause(self._process.wait())) from None
        if kind == "memory":
            self.end()
            raise WorkerDied(f"needed more memory than the {self._memory / 2**30:.1f} GiB that a worker may take")
        if kind == "bad_input":
            raise BadInput(answer)
        if kind == "failed":
            raise StokerError(answer)
        if kind == "defect":
            raise RuntimeError(f"in a worker process:\n{answer}")
        return answer, seconds

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()


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
    if sys.platform == "linux":  # the kernel does so even while one long call keeps Python's threads waiting
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
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


def serve() -> None:
    """The whole life of a worker process; its memory limit in bytes is the argument it was started with."""
    global _in_worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; Ctrl-C reaches the whole group
    _in_worker = True
    _limit_memory(int(sys.argv[1]))
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever a library prints must not mix with the answers
        _answer_jobs(sys.stdin.buffer, answers)
