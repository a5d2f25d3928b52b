from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from stoker.diagnosis import Evidence, Finding, Remedy
from stoker.monitoring.alerts import Alerting
from stoker.monitoring.picture import Picture
from stoker.monitoring.rules import Judgement, judge
from stoker.recipe import Alerts, Recipe
from stoker.recipe.loading import load_recipe
from stoker.record import SUPERVISOR
from stoker.record.framing import Entry
from tests.monitoring.watched_run import NOW, event
from tests.recipe.recipes import SMALL, write
from tests.record.step_rows import step_row


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load_recipe(write(tmp_path, SMALL + "checkpoint: {every: 10}\n")).recipe


@pytest.fixture
def picture(recipe: Recipe) -> Picture:
    return Picture(recipe)


def take(picture: Picture, kind: str, row: dict[str, Any], rank: int = 0) -> None:
    picture.take(rank, Entry(kind, 1, {"attempt": 1, "time": NOW, **row}))


def machine(picture: Picture, rank: int = 0, **row: Any) -> None:
    take(picture, "machine", row, rank)


def beyond(picture: Picture, alerts: Alerts | None = None, findings: Any = (), now: float = NOW) -> dict[str, Any]:
    found = judge(alerts or picture.recipe.alerts, picture, findings, now)
    return {one.rule: one for one in found if one.beyond}


def run_steps(picture: Picture, losses: list[float], first: int = 21, **changed: Any) -> None:
    for offset, loss in enumerate(losses):
        step = first + offset
        take(picture, "step", step_row(step, loss=loss, **{"time": NOW + offset, **changed}))


def test_a_healthy_run_is_beyond_nothing(picture: Picture) -> None:
    take(picture, "event", event("started", 0))
    run_steps(picture, [3.0 - 0.01 * i for i in range(9)], first=1)
    assert beyond(picture, now=NOW + 10) == {}


def test_a_run_that_has_written_nothing_is_beyond_nothing(picture: Picture) -> None:
    assert beyond(picture) == {}


@pytest.mark.parametrize("losses", [[3, 3.6, 3.0, 3.6], [3, 2.5, 2.0, 1.6], [3, 3.6, math.nan, 3.6]])
def test_a_loss_that_moves_three_times_in_a_row_is_told(picture: Picture, losses: list[float]) -> None:
    run_steps(picture, losses)
    assert beyond(picture)["loss_moves"].value == 3


@pytest.mark.parametrize("losses", [[3, 3.6, 3.0, 3.01, 3.6, 3.0], [3, 3.4, 3.8, 4.2]])
def test_a_loss_that_moves_less_is_not(picture: Picture, losses: list[float]) -> None:
    run_steps(picture, losses)
    assert "loss_moves" not in beyond(picture)


def test_a_loss_that_falls_from_its_initial_value_is_not(picture: Picture) -> None:
    run_steps(picture, [11.0, 9.0, 7.0, 5.0, 4.0], first=1)
    assert "loss_moves" not in beyond(picture)


def test_moves_between_two_looks_are_not_missed(picture: Picture) -> None:
    run_steps(picture, [3, 3.6, 3.0, 3.6, 3.6, 3.6])
    assert "loss_moves" in beyond(picture)
    picture.judged()
    assert "loss_moves" not in beyond(picture)


@pytest.mark.parametrize("norm", [2e5, math.nan, math.inf])
def test_a_huge_gradient_norm_is_told_also_when_it_has_passed(picture: Picture, norm: float) -> None:
    run_steps(picture, [3.0], gradient_norm=norm)
    run_steps(picture, [3.0], first=22)
    assert "gradient_norm" in beyond(picture)
    picture.judged()
    assert "gradient_norm" not in beyond(picture)


def test_no_progress_is_told_after_the_limit_and_many_usual_steps(picture: Picture) -> None:
    run_steps(picture, [3.0], seconds={"total": 0.35})
    assert "no_progress" not in beyond(picture, now=NOW + 599)
    assert "no_progress" in beyond(picture, now=NOW + 601)
    run_steps(picture, [3.0] * 40, first=22, seconds={"total": 60.0}, time=NOW)
    assert "no_progress" not in beyond(picture, now=NOW + 601)
    assert "no_progress" in beyond(picture, now=NOW + 1201)


def test_a_run_that_is_done_makes_no_progress_and_no_alert(picture: Picture) -> None:
    run_steps(picture, [3.0])
    take(picture, "event", event("finished", 21))
    assert "no_progress" not in beyond(picture, now=NOW + 1e6)


@pytest.mark.parametrize(("ranks", "slower", "told"), [(2, 1.3, True), (8, 1.3, True), (8, 1.1, False)])
def test_a_rank_whose_own_work_takes_longer_is_told(
    picture: Picture, ranks: int, slower: float, told: bool
) -> None:
    for step in range(1, 21):
        for rank in range(ranks):
            own = (slower if rank == 1 else 1.0) * (1 + 0.02 * ((step * 7 + rank * 3) % 5 - 2))
            take(picture, "step", step_row(step, work_seconds=own), rank)
    found = beyond(picture)
    assert ("slow_rank" in found) is told
    if told:
        assert "rank 1 " in found["slow_rank"].summary


def test_one_rank_has_nobody_to_be_slower_than(picture: Picture) -> None:
    run_steps(picture, [3.0] * 20)
    assert "slow_rank" not in beyond(picture)


def test_a_checkpoint_that_is_two_and_a_half_intervals_old_is_told(picture: Picture) -> None:
    take(picture, "event", event("saved", 10))
    run_steps(picture, [3.0], first=35)
    assert "checkpoint_age" not in beyond(picture)
    run_steps(picture, [3.0], first=36)
    assert beyond(picture)["checkpoint_age"].value == 2.6


def test_a_run_that_went_on_from_a_checkpoint_is_as_young_as_that(picture: Picture) -> None:
    take(picture, "event", event("resumed", 1000))
    run_steps(picture, [3.0], first=1001)
    assert "checkpoint_age" not in beyond(picture)


def test_memory_and_latency_are_of_the_worst_rank(picture: Picture) -> None:
    machine(picture, 0, memory_used_bytes=50, memory_total_bytes=100, host_memory_used_bytes=1)
    machine(picture, 3, memory_used_bytes=95, memory_total_bytes=100, network_latency_seconds=0.006)
    found = beyond(picture)
    assert set(found) == {"accelerator_memory", "network_latency"}
    assert "rank 3" in found["accelerator_memory"].summary
    assert found["network_latency"].value == 0.006


def test_utilisation_is_a_mean_over_the_whole_window(picture: Picture) -> None:
    for second in range(0, 600, 10):
        machine(picture, time=NOW + second, utilisation=0.9 if second % 100 == 0 else 0.4)
    assert "accelerator_utilisation" not in beyond(picture, now=NOW + 500), "ten minutes have not been seen"
    assert beyond(picture, now=NOW + 600)["accelerator_utilisation"].value == pytest.approx(0.45)
    for second in range(600, 900, 10):
        machine(picture, time=NOW + second, utilisation=1.0)
    assert "accelerator_utilisation" not in beyond(picture, now=NOW + 900)


def test_the_network_is_judged_by_its_busiest_interval_and_only_between_nodes(picture: Picture) -> None:
    for index in range(70):
        machine(picture, time=NOW + 10 * index, network_sent_bytes=index * 10**9, network_received_bytes=0)
    assert "network_rate" not in beyond(picture, now=NOW + 690)
    picture.take(SUPERVISOR, Entry("event", 1, {"time": NOW, **event("node_joined", node="b")}))
    assert beyond(picture, now=NOW + 690)["network_rate"].value == 8e8
    machine(picture, time=NOW + 700, network_sent_bytes=69 * 10**9 + 2 * 10**12, network_received_bytes=0)
    assert "network_rate" not in beyond(picture, now=NOW + 700)


def test_a_finding_that_is_an_alarm_is_told_and_a_warning_only_where_asked(picture: Picture) -> None:
    def finding(severity: Any) -> Finding:
        evidence = Evidence(measure="loss", expected=3.0, observed=5.0, step=7)
        return Finding(
            kind="divergence", severity=severity, first_step=7, last_step=9, confidence=0.9, evidence=(evidence,),
            remedy=Remedy(action="roll_back", arguments={"step": 7}),
        )  # fmt: skip

    assert "divergence since step 7" in beyond(picture, findings=[finding("alarm")])["finding"].summary
    assert "finding" not in beyond(picture, findings=[finding("warning")])
    lower = Alerts.model_validate({"rules": {"finding": {"limit": "warning"}}})
    assert "finding" in beyond(picture, lower, [finding("warning")])


def test_own_rules_take_the_most_extreme_of_all_who_have_the_figure(picture: Picture) -> None:
    own = [
        {"name": "hot", "figure": "machine.temperature_celsius", "above": 80},
        {"name": "idle", "figure": "machine.processor_share", "below": 0.5},
        {"name": "logit", "figure": "module.attention_logit", "above": 50},
        {"name": "english", "figure": "loss_by_source.english", "above": 1},
        {"name": "absent", "figure": "update_norm", "above": 0},
        {"name": "off", "figure": "loss", "above": 0, "enabled": False},
    ]
    alerts = Alerts.model_validate({"own": own})
    machine(picture, 0, temperature_celsius=70.0, processor_share=0.9)
    machine(picture, 1, temperature_celsius=85.0, processor_share=0.1)
    take(picture, "module", {"step": 1, "module": "blocks.0.attention", "attention_logit": 60.0})
    run_steps(picture, [3.0])
    found = beyond(picture, alerts)
    assert set(found) == {"hot", "idle", "logit"}
    assert "rank 1" in found["hot"].summary
    assert "blocks.0.attention" in found["logit"].summary


def test_a_figure_that_all_ranks_record_alike_is_put_down_to_none(picture: Picture) -> None:
    run_steps(picture, [3.0])
    alerts = Alerts.model_validate({"own": [{"name": "high", "figure": "loss", "above": 1}]})
    assert beyond(picture, alerts)["high"].summary == "loss is 3.000, above 1.000"


def test_an_alert_that_goes_on_is_told_with_the_newest_figure() -> None:
    alerting = Alerting(repeat_seconds=3600, resolved=True)
    for now, value in enumerate((7.6, 5.4)):
        alerting.take([Judgement("high", "warning", 0.0, value, 1.0, True, f"loss is {value}")], float(now))
    firing = alerting.firing["high"]
    assert (firing.value, firing.summary, firing.since) == (5.4, "loss is 5.4", 0.0)


def test_a_rule_that_is_off_is_not_judged(picture: Picture) -> None:
    run_steps(picture, [3.0], gradient_norm=1e9)
    off = Alerts.model_validate({"rules": {"gradient_norm": {"enabled": False}}})
    assert "gradient_norm" not in beyond(picture, off)


def said(is_beyond: bool, for_seconds: float = 0.0) -> list[Judgement]:
    return [Judgement("rule", "warning", for_seconds, 2.0, 1.0, is_beyond, "words")]


def states(
    alerting: Alerting, course: list[tuple[float, bool]], for_seconds: float = 0.0
) -> list[tuple[float, str]]:
    found = []
    for when, is_beyond in course:
        for notice, _ in alerting.take(said(is_beyond, for_seconds), when):
            found.append((when, "again" if notice.again else notice.state))
    return found


def test_an_alert_fires_after_its_time_and_is_over_when_calm_has_lasted() -> None:
    course = [(0.0, True), (50.0, True), (60.0, True), (70.0, True), (80.0, False), (120.0, False), (140.0, False)]
    assert states(Alerting(1e6, True), course, 60.0) == [(60.0, "firing"), (140.0, "resolved")]


def test_a_condition_that_goes_before_its_time_fires_nothing() -> None:
    course = [(0.0, True), (59.0, True), (60.0, False), (61.0, True), (119.0, True)]
    assert states(Alerting(1e6, True), course, 60.0) == []


def test_a_condition_that_comes_and_goes_is_one_alert() -> None:
    course = [(10.0 * i, i % 2 == 0) for i in range(30)] + [(300.0 + i, False) for i in range(0, 100, 10)]
    assert [state for _, state in states(Alerting(1e6, True), course)] == ["firing", "resolved"]


def test_an_alert_that_goes_on_is_told_again() -> None:
    course = [(float(i), True) for i in range(0, 1000, 10)]
    assert states(Alerting(300.0, True), course) == [
        (0.0, "firing"),
        (300.0, "again"),
        (600.0, "again"),
        (900.0, "again"),
    ]


def test_what_is_found_while_an_alert_goes_on_is_told_at_once_and_once() -> None:
    alerting = Alerting(1e6, True)
    course = [(0.0, False), (20.0, False), (30.0, True), (40.0, False), (50.0, False), (90.0, False)]
    told = []
    for when, new in course:
        judgement = Judgement("finding", "critical", 15.0, 2.0, 0.0, True, f"as of {when}", new)
        told += [(when, one.again, one.since, one.summary) for one, _ in alerting.take([judgement], when)]
    assert told == [(20.0, False, 20.0, "as of 20.0"), (50.0, False, 20.0, "as of 50.0")]


def test_a_notice_begins_with_what_is_new_and_counts_what_it_does_not_tell(picture: Picture) -> None:
    def finding(step: int, severity: str) -> Finding:
        given: dict[str, Any] = {"kind": "spike", "severity": severity, "first_step": step, "last_step": step}
        given |= {"confidence": 0.9, "evidence": ()}
        return Finding.model_validate({**given, "remedy": {"action": "watch"}})

    known = [finding(step, "alarm") for step in (1, 2, 3, 4)]
    new, faint = finding(5, "alarm"), finding(6, "note")
    [told] = [
        one for one in judge(Alerts(), picture, [*known, new, faint], 0.0, [new, faint]) if one.rule == "finding"
    ]
    assert told.summary.startswith("alarm spike since step 5; alarm spike since step 1;")
    assert told.summary.endswith("; 2 more")
    assert told.news
    assert not [one for one in judge(Alerts(), picture, [*known, faint], 0.0, [faint]) if one.news]


def test_that_it_is_over_is_recorded_also_where_people_are_not_told() -> None:
    alerting = Alerting(1e6, False)
    alerting.take(said(True), 0.0)
    alerting.take(said(False), 1.0)
    [(notice, to_people)] = alerting.take(said(False), 100.0)
    assert (notice.state, to_people) == ("resolved", False)


def test_what_an_earlier_monitor_told_is_not_told_again() -> None:
    first = Alerting(1e6, True)
    [(notice, _)] = first.take(said(True), 5.0)
    second = Alerting(1e6, True)
    second.remember([{"event": "alert", "time": 5.0, "detail": notice.as_detail()}])
    assert second.take(said(True), 6.0) == []
    assert list(second.firing) == ["rule"]
    over = {**notice.as_detail(), "state": "resolved"}
    third = Alerting(1e6, True)
    third.remember([{"event": "alert", "time": 5.0, "detail": d} for d in (notice.as_detail(), over)])
    assert len(third.take(said(True), 6.0)) == 1
