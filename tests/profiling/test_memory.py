"""How high memory goes, and for what."""

from __future__ import annotations

from typing import Any

from stoker.profiling.memory import peak_of
from tests.profiling import made_up as m


def taken(moment: float, size: int, address: int) -> dict[str, Any]:
    told = {"Bytes": size, "Addr": address, "Device Type": 0, "Total Allocated": 1000}
    return {"ph": "i", "name": "[memory]", "pid": 11, "tid": m.MAIN, "ts": moment, "args": told}


def test_the_peak_is_told_by_what_was_taken_for_it() -> None:
    trace = m.trace(
        m.step(4, 0, 100),
        m.phase("forward", 10, 30),
        m.phase("backward", 30, 60),
        taken(12, 500, 1),
        taken(20, 300, 2),
        taken(25, -300, 2),
        taken(40, 400, 3),
        taken(50, -500, 1),
        taken(55, -700, 9),  # was there before
        taken(80, 10, 4),
    )
    peak = peak_of(trace, 3, {"parameters": 64, "optimizer": 128})
    assert peak is not None
    assert (peak.rank, peak.step, peak.phase, peak.above_start) == (3, 4, "backward", 900)
    assert peak.taken == {"activations": 500, "gradients and what backward needs": 400}
    assert (peak.parameters, peak.optimizer) == (64, 128)


def test_nothing_taken_is_no_peak() -> None:
    assert peak_of(m.trace(m.step(1, 0, 1)), 0, {}) is None
