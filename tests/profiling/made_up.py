"""Traces as torch's profiler writes them, made up."""

from __future__ import annotations

from typing import Any

from stoker.profiling.trace import PHASE, STEP, WAIT, RankTrace, as_trace

MAIN, BACKGROUND, STREAM, LINK = 1, 2, 7, 20
ORIGIN = 1_790_000_000_000_000_000


def event(kind: str, name: str, start: float, end: float, thread: int = MAIN, **told: Any) -> dict[str, Any]:
    """One event from `start` to `end`, in microseconds."""
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": 0 if thread in (STREAM, LINK) else 11,
        "tid": thread,
        "ts": start,
        "dur": end - start,
        "args": told,
    }


def step(number: int, start: float, end: float) -> dict[str, Any]:
    return event("user_annotation", f"{STEP}{number}", start, end)


def phase(name: str, start: float, end: float) -> dict[str, Any]:
    return event("user_annotation", PHASE + name, start, end)


def wait(name: str, start: float, end: float) -> dict[str, Any]:
    return event("user_annotation", WAIT + name, start, end)


def operator(
    name: str, start: float, end: float, *shapes: list[int], number: int = 0, **told: Any
) -> dict[str, Any]:
    return event("cpu_op", name, start, end, **{"External id": number, "Input Dims": list(shapes), **told})


def gloo(kind: str, start: float, end: float, *shapes: list[int], thread: int = BACKGROUND) -> dict[str, Any]:
    return event("user_annotation", f"gloo:{kind}", start, end, thread, **{"Input Dims": list(shapes)})


def kernel(
    name: str, start: float, end: float, number: int = -1, stream: int = STREAM, **told: Any
) -> dict[str, Any]:
    return event("kernel", name, start, end, stream, **{"External id": number, **told})


def nccl(kind: str, start: float, end: float, ranks: str = "[0, 1]", **told: Any) -> dict[str, Any]:
    named = {"Collective name": kind, "Process Group Ranks": ranks, "Process Group Name": "0", "dtype": "Float"}
    return kernel(f"ncclDevKernel_{kind}", start, end, stream=LINK, **{"In msg nelems": 256, **named, **told})


def trace(*events: dict[str, Any], on_device: bool = False) -> RankTrace:
    return as_trace(list(events), ORIGIN, on_device=on_device)
