"""How much memory this rank has needed at most."""

from __future__ import annotations

import resource
import sys

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
