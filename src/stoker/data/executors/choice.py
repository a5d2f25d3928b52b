"""Which executor a recipe asks for."""

from __future__ import annotations

from stoker.data.executors.executor import Executor
from stoker.data.executors.local import Local
from stoker.data.executors.machine import memory_per_worker, worker_count
from stoker.recipe import Data


def executor_of(data: Data) -> Executor:
    """The executor of `data.executor`. Raises `BadInput` where it is not installed."""
    memory = _given_memory(data)
    if data.executor == "local":
        return Local(data.workers, memory, data.worker_idle_seconds)
    from stoker.data.executors.ray_tasks import RayTasks

    return RayTasks(data.workers, memory, data.worker_idle_seconds)


def worker_memory(data: Data) -> int:
    """Bytes that each worker may take; where the recipe does not say it, those of a worker of this machine."""
    return _given_memory(data) or memory_per_worker(worker_count(data.workers))


def _given_memory(data: Data) -> int | None:
    return None if data.worker_memory_gb is None else int(data.worker_memory_gb * 1e9)
