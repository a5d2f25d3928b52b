"""How much memory this rank needs, and has needed at most."""

from __future__ import annotations

import os
import resource
import sys

import psutil
import torch


def reserved_memory_bytes(device: torch.device) -> int | None:
    """Most bytes that torch's allocator has taken from a CUDA device, used or not; None elsewhere.

    What it exceeds the peak by is lost to fragmentation, or was free at that moment.
    """
    return int(torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else None


def peak_memory_bytes(device: torch.device) -> int:
    """Peak bytes: allocated on a CUDA device; resident in the process otherwise."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def allocated_memory_bytes(device: torch.device) -> int | None:
    """Bytes of tensors on a CUDA device now; None elsewhere."""
    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else None


def host_memory_bytes() -> int:
    """Bytes of this process that are in the host's memory now."""
    try:
        with open("/proc/self/statm", "rb") as statistics:
            return int(statistics.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return int(psutil.Process().memory_info().rss)
