"""The formula in cases that can be worked out by hand, and what it says of published runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from stoker.planning.reliability import RunDescription, read_run
from stoker.planning.reliability.formula import goodput_of
from stoker.planning.reliability.optimum import best_intervals, daly_interval, with_intervals, young_interval
from stoker.planning.reliability.process import process_of
from tests.planning.reliability.drawn_runs import drawn, plain

_PUBLISHED = Path(__file__).parents[3] / "examples" / "simulate"
_HOUR = 3600.0


def _published(name: str) -> RunDescription:
    return read_run(_PUBLISHED / f"{name}.yaml")


def _with_checkpoint(**fields: float) -> RunDescription:
    checkpoint = {"interval_seconds": 600, "stall_seconds": 0, "write_seconds": 0, "load_seconds": 0, **fields}
    return plain(checkpoints=[checkpoint])


def test_a_run_that_never_fails_loses_only_its_stalls() -> None:
    kind = {"name": "none", "per_day": 0.0}
    checkpoint = {"interval_seconds": 600, "stall_seconds": 20, "write_seconds": 40}
    outcome = goodput_of(process_of(plain(failures={"kinds": [kind]}, checkpoints=[checkpoint])))
    assert outcome.goodput == pytest.approx(600 / 620, rel=1e-9)
    assert outcome.losses["checkpoint stalls"] == pytest.approx(20 / 620, rel=1e-9)


def test_with_failures_alone_the_kept_share_is_the_closed_form() -> None:
    """Work of whole intervals survives an exponential time: λτ·exp(-λ(w-c)) / (exp(λ(τ+c)) - 1)."""
    outcome = goodput_of(process_of(_with_checkpoint(stall_seconds=30, write_seconds=90)))
    rate, interval, stall, write = 1 / _HOUR, 600, 30, 90
    expected = rate * interval * math.exp(-rate * (write - stall)) / math.expm1(rate * (interval + stall))
    assert outcome.goodput == pytest.approx(expected, rel=1e-9)


def test_restarts_are_repeated_until_one_succeeds() -> None:
    """The mean time until an attempt of length r succeeds is (exp(λr) - 1) / λ."""
    kind = {
        "name": "crash",
        "per_day": 24.0,
        "replaces_node": False,
        "detection_seconds": 0,
        "restart_seconds": 1800,
    }
    outcome = goodput_of(process_of(plain(failures={"kinds": [kind]})))
    down = math.expm1(0.5)  # of a mean time between failures
    assert outcome.losses["restart"] == pytest.approx(down / (1 + down), rel=1e-9)


def test_one_factor_finds_every_kind_sooner() -> None:
    usual, sooner = (process_of(read_run(None, given)) for given in ([], ["failures.detection_factor=0.5"]))
    assert sooner.detection == pytest.approx(usual.detection / 2)
    assert goodput_of(sooner).losses["detection"] < 0.6 * goodput_of(usual).losses["detection"]


def test_swapping_a_node_that_stands_ready_is_not_counted_as_waiting_for_one() -> None:
    kind = {"name": "node", "per_day": 24.0, "detection_seconds": 0, "restart_seconds": 0}
    spares = {"count": 1024, "swap_seconds": 360}
    losses = goodput_of(process_of(plain(failures={"kinds": [kind]}, spares=spares))).losses
    assert losses["node swap"] == pytest.approx(0.1 / 1.1, rel=1e-9)  # six minutes after each hour of uptime
    assert losses["waiting for a node"] == 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mode", ["fixed", "shrink", "per_step"])
def test_goodput_and_losses_add_up_to_the_whole_time(mode: str, seed: int) -> None:
    outcome = goodput_of(process_of(drawn(seed, mode)))
    assert outcome.goodput + sum(outcome.losses.values()) == pytest.approx(1, abs=1e-9)


def test_youngs_and_dalys_intervals() -> None:
    assert young_interval(60, 86400) == pytest.approx(math.sqrt(2 * 60 * 86400))
    ratio = 60 / (2 * 86400)
    expected = young_interval(60, 86400) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - 60
    assert daly_interval(60, 86400) == pytest.approx(expected)
    assert daly_interval(300, 100) == 100


def test_the_best_interval_loses_less_than_others_and_is_near_dalys_for_rare_failures() -> None:
    run = _with_checkpoint(stall_seconds=20, write_seconds=20)
    (best,) = best_intervals(run, with_intervals(run))
    assert best.daly is not None
    assert best.best == pytest.approx(best.daly, rel=0.05)
    for factor in (0.5, 0.8, 1.25, 2):
        other = goodput_of(process_of(run, [best.best * factor]))
        assert other.goodput < best.goodput


def test_a_given_interval_stays_while_that_of_a_nearer_level_is_chosen() -> None:
    kinds = [
        {"name": "node", "per_day": 20, "loses": "node", "replaces_node": False},
        {"name": "job", "per_day": 1, "loses": "job", "replaces_node": False},
    ]
    near = {"where": "peer", "stall_seconds": 1, "write_seconds": 10}
    far = {"where": "store", "interval_seconds": 1800}
    process = with_intervals(plain(failures={"kinds": kinds}, checkpoints=[near, far]))
    assert process.levels[1].interval == pytest.approx(1800, rel=0.1)
    assert 30 < process.levels[0].interval < 200


def test_more_spares_faster_restarts_and_rarer_failures_never_hurt() -> None:
    def goodput(**fields: object) -> float:
        return goodput_of(
            process_of(RunDescription.model_validate({"accelerators": 16384, **fields}), [600])
        ).goodput

    spares = [goodput(spares={"count": count}) for count in range(0, 20, 4)]
    assert spares == sorted(spares)
    restarts = [goodput(recovery={"restart_seconds": seconds}) for seconds in (900, 300, 60, 0)]
    assert restarts == sorted(restarts)
    rates = [goodput(failures={"per_1000_node_days": rate}) for rate in (20, 6.5, 3.8, 1)]
    assert rates == sorted(rates)


def test_llama_3_its_interruptions_and_its_effective_training_time() -> None:
    run = _published("llama-3-405b")
    process = with_intervals(run)
    outcome = goodput_of(process)
    assert process.rate * 86400 * 54 == pytest.approx(419, rel=1e-6)
    assert 24 / outcome.interruptions_per_day == pytest.approx(3.1, rel=0.1)
    assert outcome.effective > 0.9


@pytest.mark.parametrize(("accelerators", "hours"), [(16384, 1.8), (131072, 0.23)])
def test_rsc_1_its_projected_mean_time_to_failure(accelerators: int, hours: float) -> None:
    process = process_of(_published(f"rsc-1-{accelerators}"))
    assert 1 / process.rate / _HOUR == pytest.approx(hours, rel=0.025)


def test_torchft_with_a_failure_a_minute_commits_four_steps_of_five() -> None:
    outcome = goodput_of(process_of(_published("torchft-60s")))
    assert outcome.committed == pytest.approx(5145 / 6249, abs=0.015)
    assert outcome.groups * 30 == pytest.approx(29.6, abs=0.2)


def test_rates_of_accelerators_grow_with_those_in_a_node() -> None:
    eight, sixteen = (
        process_of(RunDescription(accelerators=4096, accelerators_per_node=per_node)) for per_node in (8, 16)
    )
    gpu, network = eight.names.index("gpu"), eight.names.index("network")
    assert sixteen.rates[gpu] == pytest.approx(eight.rates[gpu])
    assert sixteen.rates[network] == pytest.approx(eight.rates[network] / 2)
