"""What a rank leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stoker.errors import StokerError
from stoker.profiling.recording import AnnotatedClock, require_whole
from stoker.profiling.trace import read_trace
from stoker.training.marks import unwatched


def test_a_trace_that_a_full_disk_cut_off_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "rank-00000.trace.json"
    trace.write_text('{"traceEvents": []}\n')
    require_whole(trace)
    trace.write_text('{"traceEvents": [{"ph": "X", "na')
    with pytest.raises(StokerError, match="the disk is full"):
        require_whole(trace)
    with pytest.raises(StokerError, match="no trace that torch's profiler wrote"):
        read_trace(trace, on_device=False)
    with pytest.raises(StokerError, match="the disk is full"):
        require_whole(tmp_path / "nothing")


def test_phases_and_waits_are_drawn_and_timed_as_ever(tmp_path: Path) -> None:
    over = []
    clock = AnnotatedClock(torch.device("cpu"), unwatched(), lambda: over.append(1))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with clock.phase("forward"), clock.waiting("weights"):
            torch.ones(4).sum()
        with clock.phase("communication", "loss"):
            pass
        times = clock.read_and_restart()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = read_trace(tmp_path / "trace.json", on_device=False)
    assert [phase.name for phase in trace.phases] == ["forward", "communication"]
    assert [wait.name for wait in trace.waits] == ["weights", "loss"]
    assert {one.name for one in trace.operators} >= {"aten::sum", "aten::ones"}
    assert times.seconds["forward"] > 0
    assert set(times.waited) == {"weights", "loss"}
    assert over == [1]
