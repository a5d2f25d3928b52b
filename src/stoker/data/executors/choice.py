"""Which executor a recipe asks for."""

from __future__ import annotations

from stoker.data.executors.executor import Executor
from stoker.data.executors.local import Local
from stoker.recipe import Data


def executor_of(data: Data) -> Executor:
    """The executor of `data.executor`. Raises `BadInput` where it is not installed."""
    memory = None if data.worker_memory_gb is None else int(data.worker_memory_gb * 1e9)
    if data.executor == "local":
        return Local(data.workers, memory, data.worker_idle_seconds)
    from stoker.data.executors.ray_tasks import RayTasks

    return RayTasks(data.workers, memory, data.worker_idle_seconds)
