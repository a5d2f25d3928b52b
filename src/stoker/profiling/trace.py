"""One rank's trace, as torch's profiler writes it: what ran on it, when, and our own ranges among it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.errors import StokerError
from stoker.profiling.families import family_of

STEP, PHASE, WAIT = "step ", "phase ", "wait for "
"""How names of our own ranges begin: a step, a phase of it, a stretch in which this rank waits for others."""
_COLLECTIVE = re.compile(r"^(?:gloo|nccl|mpi|ucc):(\w+)")
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_AUTOGRAD = ("autograd::", "torch::autograd::")
_PARTS_OF_COLLECTIVES = ("c10d::", "_c10d_functional::", "c10d_functional::")


@dataclass(frozen=True)
class Range:
    """One of our own ranges."""

    name: str
    start: int
    """Unix time in nanoseconds, by the rank's own clock; so are all times here."""
    end: int
    thread: int = 0


@dataclass(frozen=True)
class Operator:
    """One call of an operator, on the host."""

    name: str
    start: int
    end: int
    thread: int
    number: int
    """By which kernels name the operator that launched them."""
    shapes: tuple[tuple[int, ...], ...]
    kept_for_backward: bool
    """It was called while autograd took notes: in a backward pass that is something computed again."""

    @property
    def communicates(self) -> bool:
        """Whether it is part of a collective."""
        return self.name.startswith((*_PARTS_OF_COLLECTIVES, WAIT))

    @property
    def computes(self) -> bool:
        """Whether what it does itself is computation: autograd's own nodes only call others."""
        if family_of(self.name) == "fused":
            return True
        return "::" in self.name and not self.communicates and not self.name.startswith(_AUTOGRAD)


@dataclass(frozen=True)
class Kernel:
    """Something that ran on the accelerator."""

    name: str
    start: int
    end: int
    operator: int
    """Number of the operator that launched it; -1: none is known."""


@dataclass(frozen=True)
class Transfer:
    """One collective, or one message, from when this rank came to it until it was over."""

    kind: str
    start: int
    end: int
    place: tuple[int | str, int | str]
    """Process and thread of the trace that it is drawn in."""
    shape: tuple[int, ...] = ()
    group: str = ""
    """Name of the process group; empty where the trace does not tell."""
    sequence: int = -1
    """Number in its group; -1: unknown."""
    ranks: tuple[int, ...] = ()
    """Of the group."""
    bytes: int = 0


@dataclass(frozen=True)
class Allocation:
    """Memory taken, or given back where `bytes` is negative."""

    moment: int
    bytes: int
    address: int
    allocated: int
    """Bytes in use on the device afterwards."""


@dataclass
class RankTrace:
    """What one rank did in the steps that were profiled."""

    events: list[dict[str, Any]]
    """As the profiler wrote them."""
    origin: int
    """What their times count from, unix time in nanoseconds."""
    on_device: bool
    """Whether computation is what an accelerator did, and not the operators themselves."""
    steps: dict[int, Range] = field(default_factory=dict)
    phases: list[Range] = field(default_factory=list)
    waits: list[Range] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)

    def moment(self, event: Mapping[str, Any]) -> tuple[int, int]:
        """When an event began and ended."""
        start = self.origin + round(float(event["ts"]) * 1e3)
        return start, start + round(float(event.get("dur", 0)) * 1e3)


def read_trace(path: Path, *, on_device: bool) -> RankTrace:
    """Read a rank's trace. Raises `StokerError` for a file that is none."""
    try:
        content = json.loads(path.read_bytes())
        events = content["traceEvents"]
    except (OSError, ValueError, KeyError) as error:
        raise StokerError(
            f"{path.name}: no trace that torch's profiler wrote ({error}); the rank that wrote it may have died. "
            "Profile again"
        ) from None
    return as_trace(events, int(content.get("baseTimeNanoseconds", 0)), on_device=on_device)


def as_trace(events: list[dict[str, Any]], origin: int, *, on_device: bool) -> RankTrace:
    """The trace that `events` are."""
    trace = RankTrace(events, origin, on_device)
    for event in events:
        kind = event.get("cat")
        if event["ph"] == "i" and event["name"] == "[memory]":
            _add_allocation(trace, event)
        elif event["ph"] != "X":
            continue
        elif kind in _DEVICE_WORK:
            _add_device_work(trace, event)
        elif matched := _COLLECTIVE.match(event["name"]):
            # On an accelerator the kernel is the transfer, and this only what queued it.
            if not on_device:
                _add_transfer(trace, event, matched[1])
        elif kind == "user_annotation":
            _add_range(trace, event)
        elif kind == "cpu_op":
            trace.operators.append(_operator(trace, event))
    trace.phases.sort(key=lambda phase: phase.start)
    trace.transfers.sort(key=lambda transfer: transfer.start)
    trace.allocations.sort(key=lambda allocation: allocation.moment)
    return trace


def _add_range(trace: RankTrace, event: Mapping[str, Any]) -> None:
    name, (start, end) = event["name"], trace.moment(event)
    if name.startswith(STEP) and name[len(STEP) :].isdecimal():
        trace.steps[int(name[len(STEP) :])] = Range(name, start, end)
    elif name.startswith(PHASE):
        trace.phases.append(Range(name[len(PHASE) :], start, end))
    elif name.startswith(WAIT):
        trace.waits.append(Range(name[len(WAIT) :], start, end, event["tid"]))
        trace.operators.append(Operator(name, start, end, event["tid"], -1, (), False))


def _operator(trace: RankTrace, event: Mapping[str, Any]) -> Operator:
    told, (start, end) = event.get("args", {}), trace.moment(event)
    return Operator(
        name=event["name"],
        start=start,
        end=end,
        thread=event["tid"],
        number=int(told.get("External id", -1)),
        shapes=_shapes(told.get("Input Dims", ())),
        kept_for_backward=told.get("Sequence number", -1) >= 0 and told.get("Fwd thread id") == 0,
    )


def _shapes(given: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Of a list of tensors in place of one the first alone would mislead: it has no shape."""
    flat = all(isinstance(size, int) for shape in given if isinstance(shape, list) for size in shape)
    if flat:
        return tuple(tuple(shape) if isinstance(shape, list) else () for shape in given)
    return tuple(
        tuple(shape) if isinstance(shape, list) and all(isinstance(n, int) for n in shape) else ()
        for shape in given
    )


def _add_transfer(trace: RankTrace, event: Mapping[str, Any], kind: str) -> None:
    start, end = trace.moment(event)
    shapes = _shapes(event.get("args", {}).get("Input Dims", ()))
    place = (event["pid"], event["tid"])
    trace.transfers.append(Transfer(kind, start, end, place, shapes[0] if shapes else ()))


def _add_device_work(trace: RankTrace, event: Mapping[str, Any]) -> None:
    told, (start, end), name = event.get("args", {}), trace.moment(event), event["name"]
    if "nccl" not in name.lower():
        trace.kernels.append(Kernel(name, start, end, int(told.get("External id", -1))))
        return
    ranks = json.loads(told["Process Group Ranks"]) if "..." not in told.get("Process Group Ranks", "...") else ()
    elements, size = int(told.get("In msg nelems", 0)), _bytes_of(str(told.get("dtype", "")))
    trace.transfers.append(
        Transfer(
            kind=_named_alike(str(told.get("Collective name", name))),
            start=start,
            end=end,
            place=(event["pid"], event["tid"]),
            group=str(told.get("Process Group Name", "")),
            sequence=int(told.get("Seq", -1)),
            ranks=tuple(ranks),
            bytes=elements * size,
        )
    )


def _named_alike(kind: str) -> str:
    """As gloo names its collectives."""
    for given, plain in (
        ("allreduce", "all_reduce"),
        ("allgather", "all_gather"),
        ("reduce_scatter", "reduce_scatter"),
        ("reducescatter", "reduce_scatter"),
        ("all_to_all", "all_to_all"),
        ("alltoall", "all_to_all"),
        ("sendrecv", "recv"),
        ("broadcast", "broadcast"),
    ):
        if given in kind.lower():
            return plain
    return kind.lower().removeprefix("_")


def _bytes_of(dtype: str) -> int:
    name = dtype.lower()
    if "64" in name or name in ("double", "long"):
        return 8
    if "16" in name or name == "half":
        return 2
    return 1 if "8" in name or name in ("byte", "char", "bool") else 4


def _add_allocation(trace: RankTrace, event: Mapping[str, Any]) -> None:
    told = event["args"]
    if (int(told.get("Device Type", 0)) == 1) == trace.on_device:
        moment, _ = trace.moment(event)
        count, total = int(told["Bytes"]), int(told.get("Total Allocated", 0))
        trace.allocations.append(Allocation(moment, count, int(told.get("Addr", 0)), total))
