"""One trace of all ranks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stoker.profiling.collectives import meetings
from stoker.profiling.merging import NamedTrace, merge, write_merged
from stoker.profiling.trace import Transfer, as_trace
from tests.profiling import made_up as m


def _traces() -> list[NamedTrace]:
    flows = [
        {"ph": kind, "id": 5, "pid": 11, "tid": m.MAIN, "ts": at, "cat": "fwdbwd", "name": "fwdbwd"}
        for kind, at in (("s", 1.0), ("f", 3.0))
    ]
    named = {"ph": "M", "name": "thread_name", "pid": 11, "tid": 1, "ts": 0, "args": {"name": "main"}}
    first = m.trace(m.step(1, 0, 10), m.gloo("all_reduce", 2, 8), *flows, named)
    # The second rank's clock is 1 ms ahead, and counts from another origin.
    second = as_trace(
        [m.step(1, 501, 511), m.gloo("all_reduce", 505, 509), *flows], m.ORIGIN + 500_000, on_device=False
    )
    return [NamedTrace(0, "rank 0 · dp 0", 0, first), NamedTrace(1, "rank 1 · dp 1", 1_000_000, second)]


def _met(traces: list[NamedTrace]) -> dict[int, list[Transfer]]:
    found = {}
    for one in traces:
        (own,) = one.trace.transfers
        found[one.rank] = [
            Transfer("all_reduce", own.start - one.ahead, own.end - one.ahead, own.place, ranks=(0, 1))
        ]
    return found


def test_ranks_are_laid_side_by_side_by_one_clock(tmp_path: Path) -> None:
    traces = _traces()
    write_merged(tmp_path / "trace.json.gz", merge(traces, meetings(_met(traces)), {"recipe": "small"}))
    merged = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    events = merged["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == ["rank 0 · dp 0", "rank 1 · dp 1"]
    steps = {names[e["pid"]]: e["ts"] for e in events if e["name"] == "step 1"}
    assert steps == {"rank 0 · dp 0": 0.0, "rank 1 · dp 1": 1.0}
    moments = [e["ts"] for e in events if e["ph"] != "M"]
    assert moments == sorted(moments)


@pytest.mark.parametrize("order", [1, -1])
def test_a_thread_that_is_named_twice_has_the_name_that_says_what_it_does(order: int) -> None:
    given = [
        {"ph": "M", "name": "thread_name", "pid": 11, "tid": 9, "ts": 0, "args": {"name": f"thread 9 ({name})"}}
        for name in ("pt_gloo_runloop", "python3")
    ]
    events = merge([NamedTrace(0, "rank 0", 0, m.trace(m.step(1, 0, 10), *given[::order]))], [], {})["traceEvents"]
    named = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["tid"] == 9]
    assert named == ["thread 9 (pt_gloo_runloop)"]


def test_arrows_lead_from_the_last_to_those_who_waited() -> None:
    traces = _traces()
    events = merge(traces, meetings(_met(traces)), {})["traceEvents"]
    start, end = (next(e for e in events if e["ph"] == kind and e["cat"] == "collective") for kind in "sf")
    # Rank 1 comes at 5 µs, rank 0 had come at 2.
    assert (start["pid"] // 100, start["ts"]) == (1, 5.0)
    assert (end["pid"] // 100, end["ts"]) == (0, 5.0)


def test_arrows_of_single_ranks_stay_apart() -> None:
    events = merge(_traces(), [], {})["traceEvents"]
    ids = [(e["ph"], e["id"], e["pid"]) for e in events if e.get("cat") == "fwdbwd"]
    assert len(ids) == len(set(ids)) == 4
    assert len({number for _, number, _ in ids}) == 2
