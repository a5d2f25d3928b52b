"""One trace of all ranks, by one clock, for ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.durable_files import durable_file
from stoker.profiling.collectives import Meeting
from stoker.profiling.trace import RankTrace

_LEFT_OUT = ("Input Strides", "Concrete Inputs", "Ev Idx", "Record function id")
"""Arguments that make most of a trace's size and say little."""
_PROCESSES = 100
"""Numbers of processes that each rank has for its own."""


@dataclass(frozen=True)
class NamedTrace:
    """A rank's trace, as it goes into the merged one."""

    rank: int
    name: str
    """Such as `rank 3 · dp 1 tp 0 pp 1`."""
    ahead: int
    """Nanoseconds that its clock is ahead of rank 0's."""
    trace: RankTrace


def merge(traces: Sequence[NamedTrace], met: Sequence[Meeting], about: Mapping[str, Any]) -> dict[str, Any]:
    """The merged trace: every rank a process, events in order of time, arrows from who came last to a collective.

    `met` has times by rank 0's clock.
    """
    origin = min((step.start - one.ahead for one in traces for step in one.trace.steps.values()), default=0)
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    processes: dict[int, dict[int | str, int]] = {}
    for one in traces:
        own = processes.setdefault(one.rank, {})
        for event in one.trace.events:
            events += _moved(event, one, own, origin, len(traces))
        names += _names(one, own)
        names += _thread_names(one, own)
    events += _arrows(met, processes, origin)
    events.sort(key=lambda event: float(event["ts"]))
    return {"displayTimeUnit": "ms", "otherData": dict(about), "traceEvents": names + events}


def write_merged(path: Path, merged: Mapping[str, Any]) -> None:
    """Write the merged trace, compressed; whole or not at all."""
    with durable_file(path) as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5, mtime=0) as packed:
        packed.write(json.dumps(merged, ensure_ascii=False, separators=(",", ":")).encode())


def _moved(
    event: Mapping[str, Any], one: NamedTrace, own: dict[int | str, int], origin: int, ranks: int
) -> Iterable[dict[str, Any]]:
    """The event at its place in the merged trace; nothing for what means nothing there."""
    if event["ph"] == "M" or event.get("cat") == "Trace" or "ts" not in event or event.get("pid") in ("", "Traces"):
        return
    start, _ = one.trace.moment(event)
    moved = {**event, "pid": _process(one.rank, own, event["pid"]), "ts": (start - one.ahead - origin) / 1e3}
    if event["ph"] == "i" and event["name"] == "[memory]":
        bytes_now = event["args"].get("Total Allocated", 0)
        yield {key: moved[key] for key in ("pid", "ts")} | {
            "ph": "C",
            "name": "memory in use",
            "args": {"bytes": bytes_now},
        }
        return
    if "id" in event:
        moved["id"] = int(event["id"]) * ranks + one.rank
    if "args" in event:
        moved["args"] = {key: value for key, value in event["args"].items() if key not in _LEFT_OUT}
    yield moved


def _process(rank: int, own: dict[int | str, int], given: int | str) -> int:
    return own.setdefault(given, rank * _PROCESSES + len(own))


def _names(one: NamedTrace, own: Mapping[int | str, int]) -> Iterable[dict[str, Any]]:
    """The host's process is the one our own ranges are in."""
    host = {event["pid"] for event in one.trace.events if event.get("cat") in ("cpu_op", "user_annotation")}
    for given, process in own.items():
        name = one.name if given in host else f"{one.name} · accelerator"
        for what, args in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": process})):
            yield {"ph": "M", "name": what, "pid": process, "tid": 0, "ts": 0, "args": args}


def _thread_names(one: NamedTrace, own: Mapping[int | str, int]) -> Iterable[dict[str, Any]]:
    """Each thread's name once: torch names some twice, by what they do and as a thread of the interpreter."""
    chosen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in one.trace.events:
        if event["ph"] == "M" and event["name"].startswith("thread_") and event["pid"] in own:
            key = event["name"], own[event["pid"]], event["tid"]
            if key not in chosen or "(python" in str(chosen[key]["args"].get("name")):
                chosen[key] = {**event, "pid": own[event["pid"]], "ts": 0}
    return chosen.values()


def _arrows(
    met: Sequence[Meeting], processes: Mapping[int, Mapping[int | str, int]], origin: int
) -> Iterable[dict[str, Any]]:
    """From the rank that came last to a collective to each that waited for it."""
    number = 0
    for meeting in met:
        last = meeting.last
        for rank, transfer in meeting.transfers.items():
            if rank == last:
                continue
            number += 1
            begins = meeting.last_moment
            for kind, at, moment in (
                ("s", meeting.transfers[last], begins),
                ("f", transfer, min(max(begins, transfer.start), transfer.end)),
            ):
                owner = last if kind == "s" else rank
                yield {
                    "ph": kind,
                    "bp": "e",
                    "cat": "collective",
                    "name": meeting.kind,
                    "id": number,
                    "pid": processes[owner].get(at.place[0], owner * _PROCESSES),
                    "tid": at.place[1],
                    "ts": (max(moment, begins) - origin) / 1e3,
                }
