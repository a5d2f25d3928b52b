"""How high memory went in the profiled steps, and what it held at that moment."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from stoker.profiling.trace import RankTrace

_TAKEN_IN = {
    "data": "batches",
    "forward": "activations",
    "backward": "gradients and what backward needs",
    "communication": "communication",
    "optimizer": "optimizer",
}
"""What memory is called by the phase in which it was taken."""


@dataclass(frozen=True)
class MemoryPeak:
    """The highest moment of one rank."""

    rank: int
    step: int
    phase: str
    above_start: int
    """Bytes more than when the first profiled step began."""
    taken: dict[str, int]
    """What of it had been taken since then, by what it was taken for."""
    parameters: int
    """Bytes of weights on this rank, which were there before; so were the optimizer's."""
    optimizer: int


def peak_of(trace: RankTrace, rank: int, facts: Mapping[str, int]) -> MemoryPeak | None:
    """The highest moment of `trace`; None where the profiler saw no memory taken."""
    if not trace.steps or not trace.allocations:
        return None
    began = min(step.start for step in trace.steps.values())
    ended = max(step.end for step in trace.steps.values())
    starts = [phase.start for phase in trace.phases]
    live: dict[int, tuple[int, str]] = {}
    taken: dict[str, int] = defaultdict(int)
    now = most = 0
    peak, when = {}, began
    for one in trace.allocations:
        if not began <= one.moment < ended:
            continue
        now += one.bytes
        place = bisect_right(starts, one.moment) - 1
        inside = place >= 0 and one.moment < trace.phases[place].end
        what = _TAKEN_IN.get(trace.phases[place].name if inside else "", "other")
        if one.bytes > 0:
            live[one.address] = (one.bytes, what)
            taken[what] += one.bytes
        elif one.address in live:
            size, what = live.pop(one.address)
            taken[what] -= size
        if now > most:
            most, when, peak = now, one.moment, {name: size for name, size in taken.items() if size}
    place = bisect_right(starts, when) - 1
    inside = place >= 0 and when < trace.phases[place].end
    return MemoryPeak(
        rank=rank,
        step=next(number for number, step in trace.steps.items() if step.start <= when <= step.end),
        phase=trace.phases[place].name if inside else "between phases",
        above_start=most,
        taken=dict(sorted(peak.items(), key=lambda item: -item[1])),
        parameters=int(facts.get("parameters", 0)),
        optimizer=int(facts.get("optimizer", 0)),
    )
