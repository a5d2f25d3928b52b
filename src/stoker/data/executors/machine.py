"""What this machine lends: processors, and memory for each worker."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil

_MOST_PER_PROCESSOR = 2
"""More only wait for each other, and each is a Python of its own in memory."""
_SHARE_OF_MEMORY = 0.9
_LEAST_MEMORY = 2 << 30
"""Bytes. A worker that does nothing has about a third of this mapped."""
_LIMIT_OF_GROUP = Path("/sys/fs/cgroup/memory.max")


def processor_count() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(wanted: int | None) -> int:
    """How many workers to start: as many as `wanted`, by default one and at most two for each processor."""
    processors = processor_count()
    return min(wanted or processors, _MOST_PER_PROCESSOR * processors)


def memory_per_worker(workers: int) -> int:
    """Bytes that each of some workers may take, so that together they leave the machine alive."""
    total = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # no control group, or one without a limit
        total = min(total, int(_LIMIT_OF_GROUP.read_text()))
    return max(int(total * _SHARE_OF_MEMORY) // workers, _LEAST_MEMORY)
