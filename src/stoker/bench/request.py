"""What is to be measured, as it was asked for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import get_args

import psutil
import torch

from stoker.bench.algorithms import OPERATIONS, Operation, Topology
from stoker.errors import BadInput

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_MOST_RANKS = 64
_BUFFERS = 3
"""Of the size that is measured, on each rank."""


@dataclass(frozen=True)
class Request:
    """The same on every rank."""

    operation: Operation
    sizes: tuple[int, ...]
    """Bytes, ascending."""
    topology: Topology
    rounds: int
    dtype: str
    device: str
    timeout_seconds: float = 120.0


def request_of(
    operation: str, sizes: str, ranks: int | None, node_size: int | None, rounds: int, dtype: str, device: str
) -> Request:
    """The request, with what a launcher such as torchrun says over the number of ranks. Raises `BadInput`."""
    if operation not in OPERATIONS:
        raise BadInput(f"--op: expected one of {', '.join(get_args(Operation))}, got {operation!r}")
    if dtype not in DTYPES:
        raise BadInput(f"--dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    if device not in ("auto", "cpu", "cuda"):
        raise BadInput(f"--device: expected auto, cpu or cuda, got {device!r}")
    launched = launched_ranks()
    if launched is not None and ranks not in (None, launched):
        raise BadInput(f"--ranks is {ranks}, but the launcher started {launched} ranks; leave --ranks out")
    count = launched or ranks or _default_ranks(device)
    if count < 2 or (launched is None and count > _MOST_RANKS):
        raise BadInput(f"--ranks: expected 2 to {_MOST_RANKS} on one machine, got {count}")
    own_node = int(os.environ.get("LOCAL_WORLD_SIZE", count)) if launched else count
    node = own_node if node_size is None else node_size
    if not 1 <= node <= count:
        raise BadInput(f"--node-size: expected 1 to {count}, the number of ranks, got {node}")
    wanted = sizes_of(sizes)
    _require_memory(wanted[-1], own_node, device)
    return Request(operation, wanted, Topology(count, node), rounds, dtype, device)


def sizes_of(text: str) -> tuple[int, ...]:
    """Bytes, ascending, of a list such as `1k,64k,1m`. Raises `BadInput`."""
    found = set()
    for word in text.split(","):
        matched = re.fullmatch(r"(\d{1,15})([kmg]?)i?b?", word.strip().lower())
        size = int(matched[1]) * _UNITS[matched[2]] if matched else 0
        if size < 8:
            raise BadInput(
                f"--sizes: expected sizes of 8 bytes or more such as 1k,64k,1m,16m, got {word.strip()!r}"
            )
        found.add(size)
    return tuple(sorted(found))


def launched_ranks() -> int | None:
    """How many ranks a launcher such as torchrun has started; None without one."""
    return int(os.environ["WORLD_SIZE"]) if "WORLD_SIZE" in os.environ and "RANK" in os.environ else None


def is_first_rank() -> bool:
    """Whether this process is the one that writes what is written once."""
    return launched_ranks() is None or os.environ["RANK"] == "0"


def _default_ranks(device: str) -> int:
    if device != "cpu" and torch.cuda.is_available():
        return max(2, torch.cuda.device_count())
    return max(2, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2))


def _require_memory(size: int, ranks_here: int, device: str) -> None:
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        return
    needed, free = size * _BUFFERS * ranks_here, psutil.virtual_memory().available
    if needed > free:
        raise BadInput(
            f"--sizes: {size:,} bytes on each of {ranks_here} ranks need about {needed / 2**30:,.1f} GiB, but "
            f"{free / 2**30:,.1f} GiB are free; measure smaller ones"
        )
