"""Where the jobs of a preparation are computed: in processes of this machine, or by Ray on many.

The same jobs give the same results in the same order whatever computes them, and a worker that dies over one is
told apart from a job that fails.
"""

from __future__ import annotations

from stoker.data.executors.choice import executor_of, worker_memory
from stoker.data.executors.executor import Again, Executor, WorkerDied, try_again
from stoker.data.executors.machine import processor_count, worker_count

__all__ = [
    "Again",
    "Executor",
    "WorkerDied",
    "executor_of",
    "processor_count",
    "try_again",
    "worker_count",
    "worker_memory",
]
