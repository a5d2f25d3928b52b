"""Jobs in worker processes of this machine."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from stoker.data.executors.executor import Again, Job, Result, WorkerDied, try_again
from stoker.data.executors.machine import memory_per_worker, worker_count
from stoker.data.executors.nursery import Nursery, nursery
from stoker.data.executors.worker import Worker, WorkerLimits, serve


class Local:
    """Worker processes of this machine, so that no document can end this one: even a single worker is apart."""

    def __init__(self, workers: int | None, memory: int | None = None, idle_seconds: float | None = None) -> None:
        self._workers = worker_count(workers)
        self._limits = WorkerLimits(memory or memory_per_worker(self._workers), idle_seconds)
        self._nursery = nursery(serve)
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
        if workers < 1 or most == 1:  # by the word of who asks, too little for a worker's start
            yield from map(function, waiting)
            return
        # Made here and not in the threads: Linux ends a worker with the thread that started it.
        pool = _Pool(workers, self._limits, self._nursery)
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

    def __init__(self, workers: int, limits: WorkerLimits, home: Nursery | None) -> None:
        self._limits, self._home, self._open, self._lock = limits, home, True, threading.Lock()
        self._all = [Worker(limits, home) for _ in range(workers)]
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
                self._all.append(Worker(self._limits, self._home))
                self._idle.put(self._all[-1])
            else:  # it did not die of its job
                self._idle.put(worker)

    def end(self) -> None:
        with self._lock:
            self._open = False
            for worker in self._all:
                worker.end()
