"""Jobs on this machine: in this process, or in several of its own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from stoker.data.executors.executor import Again, Job, Result, WorkerDied, try_again
from stoker.data.executors.machine import memory_per_worker, worker_count
from stoker.data.executors.worker import Worker


class Local:
    """Worker processes of this machine.

    With exactly one worker asked for, jobs are computed in this process, and one that ends it ends everything,
    unless they are to be `apart`; by default even a single job has a process of its own.
    """

    def __init__(self, workers: int | None, memory: int | None = None, *, apart: bool = False) -> None:
        self._apart = apart or workers != 1
        self._workers = worker_count(workers)
        self._memory = memory or memory_per_worker(self._workers)
        self._seconds = 0.0
        self._lock = threading.Lock()

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the worker processes so far."""
        return self._seconds

    def in_order(
        self,
        function: Callable[[Job], Result],
        jobs: Iterable[Job],
        again: Again = try_again,
        most: int | None = None,
    ) -> Iterator[Result]:
        """`function(job)` for each job, in the order of the jobs; see `Executor`."""
        waiting = list(jobs)
        workers = min(self._workers, len(waiting), most or self._workers)
        if not self._apart or workers < 1 or most == 1:
            yield from map(function, waiting)
            return
        # Made here and not in the threads: Linux ends a worker with the thread that started it.
        pool = _Pool(workers, self._memory)
        threads = ThreadPoolExecutor(workers, thread_name_prefix="stoker-worker")
        try:
            # A few jobs ahead, so that results that wait for an earlier one do not pile up.
            running: deque[Future[Result]] = deque()
            for job in waiting:
                running.append(threads.submit(self._computed, pool, function, job, again))
                if len(running) >= 4 * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.end()
            threads.shutdown(wait=True, cancel_futures=True)

    def _computed(self, pool: _Pool, function: Callable[[Job], Result], job: Job, again: Again) -> Result:
        deaths = 0
        while True:
            worker = pool.take()
            try:
                result, seconds = worker.compute(function, job)
            except WorkerDied as death:
                pool.replace(worker)
                deaths += 1
                job = again(job, death, deaths)
                continue
            except BaseException:
                pool.give(worker)
                raise
            pool.give(worker)
            with self._lock:
                self._seconds += seconds
            return result


class _Pool:
    """Workers that are idle; a dead one is replaced while the pool is open."""

    def __init__(self, workers: int, memory: int) -> None:
        self._memory, self._open, self._lock = memory, True, threading.Lock()
        self._all = [Worker(memory) for _ in range(workers)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)

    def take(self) -> Worker:
        return self._idle.get()

    def give(self, worker: Worker) -> None:
        self._idle.put(worker)

    def replace(self, worker: Worker) -> None:
        with self._lock:
            self._all.remove(worker)
            if self._open:
                self._all.append(Worker(self._memory))
                self._idle.put(self._all[-1])
            else:  # it did not die of its job
                self._idle.put(worker)

    def end(self) -> None:
        with self._lock:
            self._open = False
            for worker in self._all:
                worker.end()
