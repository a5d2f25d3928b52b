"""Formula and simulation are two ways to one figure: over drawn runs they agree within 1%."""

from __future__ import annotations

import pytest

from stoker.planning.reliability.formula import CAUSES, goodput_of
from stoker.planning.reliability.process import process_of
from stoker.planning.reliability.runs import simulate
from tests.planning.reliability.drawn_runs import drawn

pytestmark = pytest.mark.slow

_RUNS, _FAILURES = 64, 250
_WITHIN = 0.01
_CAUSE_WITHIN = 0.01


@pytest.mark.parametrize("seed", range(8))
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
