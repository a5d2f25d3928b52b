"""Jobs as tasks of a Ray cluster, or of one that Ray starts on this machine.

Each task hands its job to a worker process of its own, the same as on one machine: what limits it and what becomes
of one that dies does not depend on Ray, and no document can end a process of Ray's.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stoker.data.executors.executor import Again, Job, Result, WorkerDied, try_again
from stoker.data.executors.machine import memory_per_worker, processor_count
from stoker.data.executors.worker import Worker, WorkerLimits
from stoker.errors import BadInput, StokerError


class RayTasks:
    """Ray tasks of one processor each, at most `workers` at a time (None: as many as the cluster has processors).

    Connects to the cluster that `RAY_ADDRESS` names, else starts one here for as long as this process lives. Every
    machine must see the recipe's folder and the input under the same paths. Raises `BadInput` without Ray.
    """

    def __init__(self, workers: int | None, memory: int | None = None, idle_seconds: float | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise BadInput(
                "data.executor: `ray` needs the package ray; install it with `pip install 'stoker[ray]'`, or "
                "write `local`"
            ) from None
        if not ray.is_initialized():
            ray.init(
                address=os.environ.get("RAY_ADDRESS", "local"),
                num_cpus=None if "RAY_ADDRESS" in os.environ else workers,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            atexit.register(ray.shutdown)
        self._ray = ray
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self._workers = workers or int(found.get("CPU", 1))
        self._limits = memory or 0, idle_seconds
        self._task = ray.remote(num_cpus=1, max_retries=-1)(_compute)
        self._seconds = 0.0

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the jobs so far."""
        return self._seconds

    def in_order(
        self,
        function: Callable[[Job], Result],
        jobs: Iterable[Job],
        again: Again = try_again,
        most: int | None = None,
    ) -> Iterator[Result]:
        """`function(job)` for each job, in the order of the jobs; see `Executor`."""
        workers = min(self._workers, most or self._workers)
        running: deque[tuple[Any, Any]] = deque()
        try:
            for job in jobs:
                running.append((job, self._task.remote(function, job, *self._limits)))
                if len(running) >= 4 * workers:
                    yield self._result(function, again, *running.popleft())
            while running:
                yield self._result(function, again, *running.popleft())
        finally:
            for _, task in running:
                self._ray.cancel(task, force=True)

    def _result(self, function: Callable[[Job], Result], again: Again, job: Job, task: Any) -> Result:
        deaths = 0
        while True:
            kind, answer, seconds = self._ray.get(task)
            self._seconds += seconds
            if kind == "died":
                deaths += 1
                job = again(job, WorkerDied(answer), deaths)
                task = self._task.remote(function, job, *self._limits)
                continue
            if kind == "bad_input":
                raise BadInput(answer)
            if kind == "failed":
                raise StokerError(answer)
            if kind == "defect":
                raise RuntimeError(answer)
            result: Result = answer
            return result


_own: list[Worker] = []
"""The worker of this process of Ray's, which computes one task at a time."""


def _compute(
    function: Callable[[Any], Any], job: Any, memory: int, idle_seconds: float | None
) -> tuple[str, Any, float]:
    """Compute a job in a process of its own. Errors are returned: as exceptions Ray would wrap or retry them."""
    if not _own:
        _own.append(Worker(WorkerLimits(memory or memory_per_worker(processor_count()), idle_seconds)))
    try:
        answer, seconds = _own[0].compute(function, job)
    except WorkerDied as death:
        _own.pop().end()
        return "died", death.how, 0.0
    except BadInput as error:
        return "bad_input", str(error), 0.0
    except StokerError as error:
        return "failed", str(error), 0.0
    except RuntimeError as error:
        return "defect", str(error), 0.0
    return "done", answer, seconds
