"""Worker processes for preparation: the same function over many jobs, results in the jobs' order.

A worker is a fresh Python that knows nothing of the parent but the job it is sent, ends by itself when
the parent is gone however that ended, and inherits no lock.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import stoker
from stoker.errors import BadInput, StokerError

_MOST_PER_PROCESSOR = 2
"""More only wait for each other, and each is a Python of its own in memory."""
_END_WITH_PARENT = 1
"""`PR_SET_PDEATHSIG` of Linux's prctl."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def processor_count() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(wanted: int | None) -> int:
    """How many workers to start: as many as `wanted`, by default one and at most two for each processor."""
    processors = processor_count()
    return min(wanted or processors, _MOST_PER_PROCESSOR * processors)


def run_in_order(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """`function(job)` for each job, computed by `workers` processes, yielded in the order of the jobs.

    `function` must be importable by name; jobs and results must be picklable. With one worker everything
    is computed in this process. A `StokerError` of a job is raised here; a worker that dies is one too.
    """
    waiting = list(jobs)
    workers = min(workers, len(waiting))
    if workers <= 1:
        yield from map(function, waiting)
        return
    processes = [_Worker() for _ in range(workers)]
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for process in processes:
        idle.put(process)

    def compute(job: Job) -> Result:
        worker = idle.get()
        try:
            return worker.compute(function, job)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(workers, thread_name_prefix="stoker-worker")
    try:
        # A few jobs ahead, so that results that wait for an earlier one do not pile up.
        running: deque[Future[Result]] = deque()
        for job in waiting:
            running.append(threads.submit(compute, job))
            if len(running) >= 4 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for process in processes:
            process.end()
        threads.shutdown(wait=True, cancel_futures=True)


class _Worker:
    def __init__(self) -> None:
        environment = dict(os.environ)
        home = str(Path(stoker.__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [home, environment.get("PYTHONPATH")]))
        environment.update(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stoker.data.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def compute(self, function: Callable[[Job], Result], job: Job) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((function, job), self._process.stdin)
            self._process.stdin.flush()
            kind, answer = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError, ValueError):
            code = self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise StokerError(
                f"a worker process of the preparation died ({how}); the machine may be short of memory. "
                "Run the same command again (what was finished is kept), or set data.workers lower"
            ) from None
        if kind == "bad_input":
            raise BadInput(answer)
        if kind == "failed":
            raise StokerError(answer)
        if kind == "defect":
            raise RuntimeError(f"in a worker process:\n{answer}")
        result: Result = answer
        return result

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _answer(function: Callable[[Any], Any], job: Any) -> tuple[str, Any]:
    try:
        return "done", function(job)
    except BadInput as error:
        return "bad_input", str(error)
    except StokerError as error:
        return "failed", str(error)
    except Exception:
        return "defect", traceback.format_exc()


def _serve(jobs: BinaryIO, answers: BinaryIO) -> None:
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


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; Ctrl-C reaches the whole group
    with os.fdopen(os.dup(1), "wb") as answers_stream:
        os.dup2(2, 1)  # whatever a library prints must not mix with the answers
        _serve(sys.stdin.buffer, answers_stream)
