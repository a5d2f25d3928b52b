"""Formula and simulation are two ways to one figure: over drawn runs they agree within 1%."""

from __future__ import annotations

import random

import pytest

from stoker.planning.reliability.description import RunDescription
from stoker.planning.reliability.formula import CAUSES, goodput_of
from stoker.planning.reliability.process import process_of
from stoker.planning.reliability.runs import simulate
from tests.planning.reliability.drawn_runs import drawn, plain

pytestmark = pytest.mark.slow

_RUNS, _FAILURES = 64, 200
_WITHIN = 0.01
_CAUSE_WITHIN = 0.01


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", ["fixed", "shrink", "per_step"])
def test_formula_and_simulation_agree_on_goodput_and_on_each_loss(mode: str, seed: int) -> None:
    process = process_of(drawn(seed, mode))
    formula = goodput_of(process)
    simulated = simulate(process, _RUNS, seed, wall_seconds=_FAILURES / process.rate)
    wall = simulated.wall.sum()
    assert simulated.useful.sum() / wall == pytest.approx(formula.goodput, rel=_WITHIN)
    assert simulated.kept.sum() / wall == pytest.approx(formula.effective, rel=_WITHIN)
    for cause in CAUSES:
        assert simulated.losses[cause].sum() / wall == pytest.approx(formula.losses[cause], abs=_CAUSE_WITHIN), (
            cause
        )


def test_they_agree_for_a_run_that_often_waits_for_a_node() -> None:
    fields = {
        "accelerators": 512,
        "failures": {"kinds": [{"name": "node", "per_day": 6, "detection_seconds": 600, "restart_seconds": 60}]},
        "spares": {"count": 1, "repair_hours": 6, "replace_hours": 4},
    }
    process = process_of(RunDescription.model_validate(fields), [600])
    formula = goodput_of(process)
    simulated = simulate(process, _RUNS, 0, wall_seconds=15 * _FAILURES / process.rate)
    assert formula.losses["waiting for a node"] > 0.1
    assert simulated.useful.sum() / simulated.wall.sum() == pytest.approx(formula.goodput, rel=_WITHIN)


def test_two_levels_of_copies_keep_what_a_step_by_step_walk_keeps() -> None:
    """An oracle of its own: second by second, with a list of copies and no formula."""
    kinds = [
        {"name": "process", "per_day": 240.0, "loses": "process", "replaces_node": False},
        {"name": "job", "per_day": 60.0, "loses": "job", "replaces_node": False},
    ]
    kinds = [{**kind, "detection_seconds": 0, "restart_seconds": 0} for kind in kinds]
    near = {"where": "memory", "interval_seconds": 60, "stall_seconds": 2, "write_seconds": 20, "load_seconds": 0}
    far = {"where": "store", "interval_seconds": 300, "stall_seconds": 10, "write_seconds": 100, "load_seconds": 0}
    process = process_of(plain(failures={"kinds": kinds}, checkpoints=[near, far]))
    assert goodput_of(process).goodput == pytest.approx(_walk(2_000_000), rel=0.01)


def _walk(seconds: int) -> float:
    dice = random.Random(1)
    work = stalled = kept_near = kept_far = 0
    writing: list[tuple[int, int, bool]] = []
    for now in range(seconds):
        for ready, position, far in [copy for copy in writing if copy[0] <= now]:
            writing.remove((ready, position, far))
            kept_near, kept_far = (kept_near, position) if far else (position, kept_far)
        drawn_value = dice.random()
        if drawn_value < 60 / 86400:
            work = kept_near = kept_far
            writing, stalled = [], 0
        elif drawn_value < 300 / 86400:
            work, stalled = max(kept_near, kept_far), 0
            writing = [copy for copy in writing if copy[2]]
        if stalled:
            stalled -= 1
            continue
        work += 1
        if work % 60 == 0:
            stalled = 2
            writing.append((now + 1 + 20, work, False))
        if work % 300 == 0:
            stalled += 10
            writing.append((now + 1 + 100, work, True))
    return work / seconds
