"""The whole answer: the same every time, cost and days that follow from goodput, tables, and the verb itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.errors import BadInput
from stoker.planning.reliability import SWEEPS, Answer, answer, read_run, words
from stoker.planning.reliability.changes import best_spares, point_of, sweep, worths

_RUNS = 20


@pytest.fixture(scope="module")
def found() -> Answer:
    return answer(read_run(None, ["accelerators=16384", "ideal_days=20"]), _RUNS, 1)


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(found: Answer) -> None:
    again = answer(found.run, _RUNS, 1)
    assert again.as_json() == found.as_json()
    other = answer(found.run, _RUNS, 2)
    assert found.simulated is not None
    assert other.simulated is not None
    assert other.simulated.goodput != found.simulated.goodput
    assert other.point == found.point


def test_days_and_cost_follow_from_goodput(found: Answer) -> None:
    point = found.point
    assert point.days == pytest.approx(20 / point.goodput.goodput)
    assert point.cost == pytest.approx(point.days * 24 * (16384 + 18 * 8) * 2.0)
    assert found.simulated is not None
    low, middle, high = found.simulated.days.values()
    assert low < middle < high
    assert middle == pytest.approx(point.days, rel=0.02)


def test_a_run_described_by_its_wall_time_lasts_that_long() -> None:
    seen = answer(read_run(None, ["accelerators=4096", "wall_days=10"]), _RUNS, 0)
    assert seen.point.days == 10
    assert seen.simulated is not None
    assert seen.simulated.days[0.5] == pytest.approx(10, rel=0.01)


def test_a_faster_restart_is_worth_the_time_it_saves() -> None:
    run = read_run(None, ["accelerators=16384", "ideal_days=20"])
    (faster,) = [worth for worth in worths(run) if worth.change.startswith("restart faster")]
    minute_of_each_failure = 60 / (3.09 * 3600)
    assert faster.gain == pytest.approx(minute_of_each_failure, rel=0.25)
    assert faster.saved > 0


def test_found_a_minute_sooner_means_a_minute_whatever_the_factor() -> None:
    kinds = "failures.kinds=[{name: crash, per_day: 24, detection_seconds: %d}]"
    checkpoint = "checkpoints.0.interval_seconds=300"
    plain, scaled = (
        read_run(None, [kinds % seconds, checkpoint, f"failures.detection_factor={factor}"])
        for seconds, factor in ((200, 1), (400, 0.5))
    )
    assert worths(plain) == worths(scaled)


@pytest.mark.parametrize("what", SWEEPS)
def test_a_sweep_has_the_run_itself_among_its_lines(what: str) -> None:
    run = read_run(None, ["accelerators=8192"])
    rows = sweep(run, what)
    assert [row.value for row in rows] == sorted({row.value for row in rows})
    assert sum(row.given for row in rows) == 1
    assert len(rows) >= 5


def test_goodput_falls_with_size_and_rises_with_spares() -> None:
    run = read_run(None, ["accelerators=8192"])
    by_size = [row.point.goodput.goodput for row in sweep(run, "accelerators")]
    assert by_size == sorted(by_size, reverse=True)
    by_spares = [row.point.goodput.goodput for row in sweep(run, "spares")]
    assert by_spares == sorted(by_spares)


def test_the_cheapest_number_of_spares_is_cheaper_than_its_neighbours() -> None:
    run = read_run(None, ["accelerators=16384", "checkpoints.0.interval_seconds=300"])
    count, best = best_spares(run)
    for other in (count - 3, count + 3):
        spares = run.spares.model_copy(update={"count": other})
        assert point_of(run.model_copy(update={"spares": spares})).cost_of_work > best.cost_of_work


def test_every_answer_about_spares_names_the_same_optimum_and_the_sweep_has_its_neighbours() -> None:
    run = read_run(None, ["accelerators=16384", "checkpoints.0.interval_seconds=300"])
    seen = answer(run, 1, 0, ["spares"])
    rows = {int(row.value): row.point.cost_of_work for row in seen.sweeps["spares"]}
    (best,) = [int(row.value) for row in seen.sweeps["spares"] if row.best]
    assert best == seen.spares == min(rows, key=lambda count: rows[count])
    assert {best - 1, best + 1, run.spare_count} <= set(rows)
    assert f"With {best} spare nodes instead of {run.spare_count} the work costs least" in words.verdict(seen)
    at_best = answer(read_run(None, ["checkpoints.0.interval_seconds=300", f"spares.count={best}"]), 1, 0)
    assert f"{best} spare nodes are about right" in words.verdict(at_best)


def test_the_best_number_of_many_spares_is_sought_to_the_node() -> None:
    given = ["accelerators=400000", "checkpoints.0.interval_seconds=60", "failures.per_1000_node_days=30"]
    run = read_run(None, given)
    count, best = best_spares(run)
    assert count > 1000
    for other in (count - 1, count + 1):
        spares = run.spares.model_copy(update={"count": other})
        assert point_of(run.model_copy(update={"spares": spares})).cost_of_work >= best.cost_of_work


def test_an_interval_stands_in_its_sweep_as_it_was_given_beside_the_optimum_and_its_neighbours() -> None:
    seen = answer(read_run(None, ["checkpoints.0.interval_seconds=1800"]), 1, 0, ["interval"])
    rows = seen.sweeps["interval"]
    assert [row.value for row in rows if row.given] == [1800]
    (best,) = [position for position, row in enumerate(rows) if row.best]
    assert 0 < best < len(rows) - 1
    assert min(rows, key=lambda row: row.point.cost_of_work).best
    assert rows[best].value == seen.intervals[0].best
    assert ("1,800", "as described") in [(row[0], row[-1]) for row in words.sweep_rows(seen, "interval")]
    assert "every 1,800 s of training" in words.summary(seen)


def test_a_sweep_costs_the_same_work_however_a_run_is_described() -> None:
    work = 10 * point_of(read_run(None, ["accelerators=8192"])).goodput.goodput
    by_wall, by_work = (
        sweep(read_run(None, ["accelerators=8192", given]), "accelerators")
        for given in ("wall_days=10", f"ideal_days={work}")
    )
    for one, other in zip(by_wall, by_work, strict=True):
        assert one.point.cost_of_work == pytest.approx(other.point.cost_of_work)
        same = one.point.days_of_work * one.point.goodput.goodput * one.value
        assert same == pytest.approx(work * 8192)


def test_what_was_assumed_is_printed_and_told(found: Answer) -> None:
    said = " ".join(words.summary(answer(read_run(None), 1, 0)).split())
    for part in (
        "60 days of training",
        "$2.00 an accelerator-hour",
        "restarts of 300 s",
        "stall 5 s",
        "load in 60 s",
    ):
        assert part in said
    told = answer(read_run(None), 1, 0).as_json()
    described = told["description"]
    assert (described["ideal_days"], described["spares"]["count"], described["replicas"]["count"]) == (60, 18, 2048)
    assert {kind["restart_seconds"] for kind in told["kinds"]} == {300}
    again = [f"{name}={json.dumps(value)}" for name, value in described.items()]
    assert read_run(None, again).spare_count == 18


def test_a_sweep_of_what_nothing_depends_on_names_no_optimum() -> None:
    crash = "failures.kinds=[{name: crash, per_day: 9, restart_seconds: 60}]"
    alone = read_run(None, [crash, "replicas.mode=per_step", "accelerators=64"])
    assert not any(row.best for row in sweep(alone, "interval"))
    assert sweep(read_run(None, [crash, "replicas.mode=per_step", "checkpoints=[]"]), "interval") == []
    seen = answer(alone, 1, 0, ["restart"])
    assert words.sweep_rows(seen, "restart")[0][-1] == "every kind of failure says its own restart"


def test_a_restart_of_no_seconds_says_that_loading_is_left() -> None:
    seen = answer(read_run(None, ["checkpoints.0.load_seconds=45"]), 1, 0, ["restart"])
    assert words.sweep_rows(seen, "restart")[0][-1] == "45 s are left: loading"


def test_no_number_is_written_as_a_power_of_ten() -> None:
    assert [words.number(value) for value in (26202.4, 0.000012, 67.5)] == ["26,202", "0.000012", "67.5"]
    dollars = [words.money(value) for value in (20.61e9, -3.0241e6, 4e18, 56.6e6)]
    assert dollars == ["$20.61 billion", "-$3.024 million", "$4,000,000 trillion", "$56.60 million"]


def test_each_largest_loss_is_said_in_a_sentence_that_reads(found: Answer) -> None:
    often = answer(read_run(None, ["checkpoints.0.interval_seconds=7200", "ideal_days=5"]), 1, 0)
    assert "goes to work that is done again after a failure (" in words.verdict(often)
    assert "goes to restarts (" in words.verdict(found)


def test_a_run_that_fails_faster_than_it_restarts_is_said_to_get_nowhere() -> None:
    hopeless = read_run(None, ["accelerators=4096", "failures.per_1000_node_days=100000"])
    seen = answer(hopeless, _RUNS, 0)
    assert seen.simulated is None
    assert "next to no headway" in words.verdict(seen)
    assert "never" in words.summary(seen) or seen.point.days > 1e4


def test_another_sweep_is_refused() -> None:
    with pytest.raises(BadInput, match="expected one of interval, spares, restart, accelerators, got 'price'"):
        answer(read_run(None), 1, 0, ["price"])


def test_the_verb_prints_tables_and_a_verdict() -> None:
    result = CliRunner().invoke(
        cli.application, ["simulate", "accelerators=4096", "ideal_days=5", "--runs", "5", "--sweep", "interval"]
    )
    assert result.exit_code == 0, result.output
    for part in ("goodput", "where the time goes", "seconds of training between checkpoints", "Of 100 paid hours"):
        assert part in result.stdout


def test_the_verb_gives_everything_as_json(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("name: small\naccelerators: 2048\nideal_days: 5\n", encoding="utf-8")
    result = CliRunner().invoke(cli.application, ["simulate", str(path), "spares.count=3", "--runs", "5", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["description"]["name"] == "small"
    assert told["spare_nodes"] == 3
    assert set(told["sweeps"]) == set(SWEEPS)
    named = ["simulate", str(path), "--runs", "2", "--json", "--sweep", "spares"]
    assert set(json.loads(CliRunner().invoke(cli.application, named).stdout)["sweeps"]) == {"spares"}
    assert told["goodput"] + sum(told["losses"].values()) == pytest.approx(1)
