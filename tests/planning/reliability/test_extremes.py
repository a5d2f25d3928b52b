"""Whatever may be described is answered with figures that make sense; what may not is refused by its name."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import BadInput
from stoker.planning.reliability import RunDescription, answer, read_run, words
from stoker.planning.reliability.description import MOST_ACCELERATORS
from stoker.planning.reliability.formula import CAUSES, goodput_of
from stoker.planning.reliability.process import process_of
from stoker.planning.reliability.runs import simulate
from stoker.recipe.fields import dotted, leaves

pytestmark = pytest.mark.slow

_OPTIONAL = (
    "ideal_days",
    "wall_days",
    "spares.count",
    "spares.replace_hours",
    "replicas.count",
    "failures.per_1000_node_days",
    "failures.kinds.0.restart_seconds",
)
_NUMBERS = sorted(
    {dotted(place) for place, leaf in leaves(RunDescription().model_dump()) if type(leaf) in (int, float)}
    | {*_OPTIONAL, "checkpoints.0.interval_seconds"}
    - {
        f"failures.kinds.{kind}.{rate}"
        for kind in range(1, 12)
        for rate in ("per_1000_node_days", "detection_seconds")
    }
)


def _described(**sections: Any) -> RunDescription:
    return RunDescription.model_validate(sections)


@pytest.mark.parametrize("nonsense", ["-1", ".nan", ".inf", "-.inf", "1e30", "soon"])
def test_a_number_that_cannot_be_is_refused_in_every_field(nonsense: str) -> None:
    for name in _NUMBERS:
        with pytest.raises(BadInput, match="expected") as caught:
            read_run(None, [f"{name}={nonsense}"])
        assert name in str(caught.value)
        assert f"override {name}={nonsense}" in str(caught.value)


@st.composite
def _extremes(draw: st.DrawFn) -> RunDescription:
    """Each value at an end of what is allowed, or anywhere between, over all orders of magnitude."""

    def between(low: float, high: float) -> float:
        return float(min(high, max(low, math.exp(draw(st.floats(math.log(low), math.log(high)))))))

    mode = draw(st.sampled_from(["fixed", "shrink", "per_step"]))
    per_node = draw(st.sampled_from([1, 8, 1024]))
    nodes = draw(st.sampled_from([2, 64, MOST_ACCELERATORS // per_node]))
    stall = draw(st.sampled_from([0.0, between(1e-3, 3600)]))
    return _described(
        accelerators=nodes * per_node,
        accelerators_per_node=per_node,
        step_seconds=between(1e-6, 86400),
        wall_days=between(1e-3, 3660),
        failures={
            "kinds": [
                {
                    "name": "node",
                    "per_day": draw(st.sampled_from([0.0, 86400.0, between(1e-6, 1e6)])),
                    "detection_seconds": draw(st.sampled_from([0.0, between(1, 30 * 86400)])),
                    "restart_seconds": draw(st.sampled_from([0.0, between(1, 30 * 86400)])),
                }
            ]
        },
        checkpoints=[{"stall_seconds": stall, "write_seconds": 2 * stall, "load_seconds": stall}],
        spares={"count": draw(st.sampled_from([0, nodes])), "repair_hours": between(1e-3, 366 * 24)},
        replicas={"mode": mode},
        stragglers={
            "slow_nodes_per_1000_node_days": draw(st.sampled_from([0.0, between(1e-3, 1e6)])),
            "found_after_hours": between(1e-3, 366 * 24),
            "spread": draw(st.sampled_from([0.0, 10.0])),
        },
        planned={"per_day": draw(st.sampled_from([0.0, 1000.0]))},
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_extremes())
def test_the_formula_makes_sense_of_everything_that_may_be_described(run: RunDescription) -> None:
    found = goodput_of(process_of(run))
    assert 0 <= found.goodput <= 1
    assert 0 <= found.committed <= 1
    assert found.goodput + sum(found.losses.values()) == pytest.approx(1, abs=1e-6)
    assert math.isfinite(found.interruptions_per_day)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(_extremes())
def test_a_simulation_draws_no_more_than_it_is_allowed_and_accounts_for_all_its_time(run: RunDescription) -> None:
    found = simulate(process_of(run), 3, 0, wall_seconds=(run.wall_days or 1) * 86400)
    assert found.by_kind.sum() < 200_000
    spent = found.useful + sum(found.losses[cause] for cause in CAUSES)
    assert spent == pytest.approx(found.wall, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "overrides",
    [
        ["step_seconds=86400"],
        ["accelerators=1000000"],
        ["failures.kinds=[{name: all, per_day: 86400}]"],
        ["wall_days=3660"],
        ["stragglers.spread=10", "stragglers.jitter=10"],
    ],
    ids=lambda value: value[0][:40],
)
def test_extreme_runs_are_answered_in_words(overrides: list[str]) -> None:
    found = answer(read_run(None, overrides), 20, 0)
    assert words.summary(found)
    assert words.verdict(found)
    if found.simulated is not None and found.simulated.goodput_error is not None:
        off = abs(found.simulated.goodput - found.point.goodput.goodput)
        assert off < 0.005 + 3 * found.simulated.goodput_error


def test_the_stated_error_of_the_mean_holds_in_nineteen_of_twenty_simulations() -> None:
    run = read_run(None, ["accelerators=16384", "ideal_days=5", "checkpoints.store.interval_seconds=330"])
    process = process_of(run)
    truth = goodput_of(process).goodput
    outside = 0
    for seed in range(20):
        found = simulate(process, 20, seed, ideal_seconds=5 * 86400)
        beside = found.useful - found.useful.sum() / found.wall.sum() * found.wall
        error = 1.96 * beside.std(ddof=1) / found.wall.mean() / math.sqrt(20)
        outside += abs(found.useful.sum() / found.wall.sum() - truth) > error
    assert outside <= 4  # of a binomial with mean one, more come in one case of four hundred
