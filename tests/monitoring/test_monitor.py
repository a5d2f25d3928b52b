"""The whole monitor over the folder of a run that is written without training."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.diagnosis import Finding, Remedy
from stoker.errors import BadInput
from stoker.monitoring.json_logs import JsonLog
from stoker.monitoring.live_diagnosis import Told
from stoker.monitoring.lock import held
from stoker.monitoring.monitor import Monitor
from stoker.monitoring.watching import watch
from stoker.record import MONITOR, Record, RecordWriter
from stoker.run_directory import RunDirectory
from tests.monitoring.watched_run import NOW, event, make_run, receiver, rows, steps, wait_for
from tests.record.step_rows import step_row

HUGE = {"gradient_norm": 2e5}


def told(run: RunDirectory, name: str) -> list[dict[str, Any]]:
    return [one["detail"] for one in Record(run.record).events(MONITOR) if one["event"] == name]


def look(run: RunDirectory, *, diagnose: bool = False, now: float = NOW) -> list[str]:
    """One monitor, one look; what it said."""
    lines: list[str] = []
    monitor = Monitor(run, lines.append, live=True)
    monitor.look(now, diagnose=diagnose)
    monitor.close(5.0)
    return lines


def diverging(run: RunDirectory) -> None:
    """A loss that falls for 300 steps and then rises without end."""
    steps(run, 1, 400, loss=lambda s: 3.0 - s / 1000 + 0.01 * (s * 7 % 5) + max(0, s - 300) * 0.02)


def test_an_alert_is_said_recorded_and_sent(tmp_path: Path) -> None:
    with receiver() as hook:
        run = make_run(tmp_path, f"alerts: {{webhook: 'http://127.0.0.1:{hook.port}/x'}}\n")
        steps(run, 1, 30, **HUGE)
        [line] = look(run)
        assert line.startswith("alert gradient_norm firing (critical): the gradient norm reached 200,000")
        [alert] = told(run, "alert")
        assert (alert["rule"], alert["state"], alert["value"], alert["limit"]) == (
            "gradient_norm",
            "firing",
            2e5,
            1e5,
        )
        assert [one["rule"] for one in hook.got] == ["gradient_norm"]
        assert hook.got[0] | alert == hook.got[0]
        assert hook.got[0]["run"] == "small"
        assert hook.got[0]["step"] == 30


def test_a_monitor_that_is_started_again_tells_nothing_twice(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    diverging(run)
    rows(run, "event", event("saved", 390))
    first = look(run, diagnose=True)
    assert any("alert finding firing" in line for line in first)
    before = Record(run.record).events(MONITOR)
    assert look(run, diagnose=True, now=NOW + 5) == []
    assert Record(run.record).events(MONITOR) == before


def test_findings_are_recorded_as_the_diagnosis_has_them(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    diverging(run)
    look(run, diagnose=True)
    alarms = [one for one in told(run, "finding") if one["severity"] == "alarm"]
    assert [one["kind"] for one in alarms] == ["divergence"]
    assert 280 <= alarms[0]["first_step"] <= 340


@pytest.mark.parametrize("policy", ["wait", "rollback", "ask"])
def test_the_run_is_asked_back_where_the_recipe_says_so(tmp_path: Path, policy: str) -> None:
    run = make_run(tmp_path, f"recovery: {{on_finding: {policy}}}\n")
    diverging(run)
    look(run, diagnose=True)
    assert run.asked_back.is_file() is (policy != "wait")
    if policy != "wait":
        asked = json.loads(run.asked_back.read_text())
        assert asked["number"] == 1
        assert asked["before_step"] == asked["finding"]["first_step"]
        assert asked["finding"]["kind"] == "divergence"
        assert "divergence" in asked["why"]


def test_it_is_asked_back_once_until_it_has_gone_back(tmp_path: Path) -> None:
    run = make_run(tmp_path, "recovery: {on_finding: rollback}\n")
    diverging(run)
    look(run, diagnose=True)
    look(run, diagnose=True)
    assert json.loads(run.asked_back.read_text())["number"] == 1
    rows(run, "event", {**event("went_back", 290), "time": 2e9})
    steps(run, 291, 400, loss=lambda s: 2.7 - s / 1000 + 0.01 * (s * 7 % 5))
    look(run, diagnose=True)
    assert json.loads(run.asked_back.read_text())["number"] == 1, "its new course is sound"
    writer = RecordWriter(run.record, 0, 3600.0)
    for step in range(401, 500):
        writer.append("step", step_row(step, loss=2.3 + (step - 400) * 0.03, time=NOW + step / 10))
    writer.close()
    look(run, diagnose=True)
    asked = json.loads(run.asked_back.read_text())
    assert asked["number"] == 2
    assert asked["before_step"] >= 395


def test_what_was_found_of_a_course_that_was_given_up_asks_for_nothing(tmp_path: Path) -> None:
    """The run has gone back, and no step of its new course is in the record yet."""
    run = make_run(tmp_path, "recovery: {on_finding: rollback}\n")
    diverging(run)
    rows(run, "event", event("went_back", 290))
    look(run, diagnose=True)
    assert not run.asked_back.exists()
    assert told(run, "finding") == []


def test_a_finding_that_comes_and_goes_is_recorded_once_and_when_it_is_worse() -> None:
    def finding(severity: Any, first: int) -> Finding:
        remedy = Remedy(action="watch")
        return Finding(
            kind="spike", severity=severity, first_step=first, last_step=first + 5, confidence=0.9, evidence=(),
            remedy=remedy,
        )  # fmt: skip

    known = Told()
    course = [("warning", 10), ("warning", 12), ("alarm", 12), ("warning", 12), ("alarm", 14), ("warning", 500)]
    assert [known.is_new(finding(*one)) for one in course] == [True, False, True, False, False, True]


def test_one_incident_is_told_once_however_much_more_of_it_is_seen_and_again_when_its_cause_is_known() -> None:
    def finding(**given: Any) -> Finding:
        seen = {"kind": "spike", "severity": "warning", "first_step": 120, "last_step": 121, "confidence": 0.9}
        return Finding.model_validate({**seen, "evidence": (), "remedy": Remedy(action="watch"), **given})

    known = Told()
    course: list[tuple[dict[str, Any], bool]] = [
        ({"cause": "hard_documents"}, True),
        ({"cause": "garbled_text", "sources": ("a",)}, True),
        ({"cause": "garbled_text", "sources": ("a", "b"), "last_step": 122}, False),
        ({"cause": "hard_documents", "last_step": 123}, False),
        ({"cause": "garbled_text", "sources": ("b",), "kind": "step_rise"}, False),
        ({"cause": "html_text"}, True),
        ({"cause": "garbled_text", "sources": ("c",)}, True),
        ({"kind": "throughput_drop"}, True),
        ({"kind": "slow_rank", "cause": "slow_compute", "ranks": (1,)}, True),
        ({"kind": "slow_rank", "cause": "slow_compute", "ranks": (2,)}, True),
    ]
    assert [known.is_new(finding(**given)) for given, _ in course] == [new for _, new in course]
    again = Told()
    for given, _ in course:
        again.remember(finding(**given).model_dump(mode="json"))
    assert not any(again.is_new(finding(**given)) for given, _ in course)


def test_two_monitors_never_watch_one_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    steps(run, 1, 30)
    with held(run) as writes:
        assert writes
        with pytest.raises(BadInput, match=f"process {os.getpid()} on .* \\(monitor\\)"):
            watch(run, lambda line: None, follow=True)
        assert watch(run, lambda line: None, once=True).step == 30


def test_nobody_is_told_of_a_run_that_is_over(tmp_path: Path) -> None:
    with receiver() as hook:
        run = make_run(tmp_path, f"alerts: {{webhook: 'http://127.0.0.1:{hook.port}/x'}}\n")
        steps(run, 1, 30, **HUGE)
        lines: list[str] = []
        outlook = watch(run, lines.append)
        assert [one.rule for one in outlook.alerts] == ["gradient_norm"]
        assert (hook.got, lines) == ([], [])
        assert Record(run.record).events(MONITOR) == []


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[RunDirectory]:
    run = make_run(tmp_path, "exporters: {json_logs: {enabled: true}}\n")
    steps(run, 1, 30, **HUGE)
    done = subprocess.run(["mount", "--bind", "-o", "ro", str(run.path), str(run.path)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("folders can be mounted read-only by root alone")
    yield run
    subprocess.run(["umount", str(run.path)], check=True)


def test_a_folder_that_is_read_only_is_watched_all_the_same(read_only: RunDirectory) -> None:
    lines: list[str] = []
    with held(read_only) as writes:
        assert not writes
        monitor = Monitor(read_only, lines.append, live=True, writes=writes)
        monitor.look(NOW, diagnose=True)
        monitor.close(5.0)
        with pytest.raises(BadInput, match="another monitor"):
            watch(read_only, lines.append, follow=True)
    assert any("gradient_norm firing" in line for line in lines)
    assert any("there is no JSON log" in line for line in lines)
    assert not (read_only.record / "monitor").exists()


def test_torn_tails_and_missing_ranks_are_no_reason_to_stop(tmp_path: Path) -> None:
    run = make_run(tmp_path, "layout: {dp_shard: 4}\n")
    for rank in (0, 2):
        steps(run, 1, 40, rank=rank, gradient_norm=float("nan"), loss=float("inf"))
        live = run.record / f"rank-{rank:05d}" / "live.frames"
        live.write_bytes(live.read_bytes()[:-9])
    (run.record / "rank-00003").mkdir()
    (run.record / "rank-00003" / "live.frames").write_bytes(b"nothing that can be read")
    (run.record / "rank-00001").mkdir()
    (run.record / "rank-00001" / "step-000000000001-000000000002.parquet").write_bytes(b"damaged")
    lines = look(run, diagnose=True)
    assert any("gradient_norm firing" in line and "by step 39" in line for line in lines)


def test_an_empty_record_is_nothing_to_tell_of(tmp_path: Path) -> None:
    assert look(make_run(tmp_path), diagnose=True) == []


def test_rules_can_be_off_altogether(tmp_path: Path) -> None:
    run = make_run(tmp_path, "alerts: {enabled: false}\n")
    steps(run, 1, 30, **HUGE)
    assert look(run, diagnose=True) == []


def test_json_logs_are_one_object_a_line_in_elastics_names(tmp_path: Path) -> None:
    run = make_run(tmp_path, "exporters: {json_logs: {enabled: true, every: 10}}\n")
    steps(run, 1, 30, gradient_norm=lambda s: 2e5 if s == 30 else float("nan") if s == 20 else 1.0)
    rows(run, "event", event("save_failed", 20, reason="行\n full"))
    look(run)
    lines = (run.path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    for one in found:
        assert one["@timestamp"].endswith("Z")
        assert {"log.level", "message", "ecs.version", "event.dataset", "event.kind", "labels"} <= set(one)
        assert one["labels"]["run"] == "small"
    by_step = [one["stoker"]["step"] for one in found if one["event.dataset"] == "stoker.step"]
    assert by_step == [10, 20, 30]
    levels = {one.get("event.action"): one["log.level"] for one in found}
    assert (levels["save_failed"], levels["alert"]) == ("warn", "error")
    [norm] = [one["stoker"]["gradient_norm"] for one in found if one["message"].startswith("step 20: loss")]
    assert norm == "NaN"


def test_ranks_that_begin_later_are_followed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    steps(run, 1, 20)
    monitor = Monitor(run, lambda line: None, live=True)
    monitor.look(NOW)
    steps(run, 1, 20, rank=1, work_seconds=0.9)
    monitor.look(NOW)
    monitor.close(1.0)
    assert set(monitor.picture.ranks) == {0, 1}


def test_looks_become_rarer_where_they_cost_more(tmp_path: Path) -> None:
    run = make_run(tmp_path, "alerts: {share_of_core: 0.02}\n")
    steps(run, 1, 2000)
    monitor = Monitor(run, lambda line: None, live=True)
    waits = [monitor.look(NOW) for _ in range(3)]
    monitor.close(1.0)
    assert waits[-1] >= 1.0
    assert all(1.0 <= wait < 60.0 for wait in waits)


def test_the_endpoint_is_told_of_and_answers(tmp_path: Path) -> None:
    from urllib.request import urlopen

    run = make_run(tmp_path, "exporters: {prometheus: {enabled: true, port: 0}}\n")
    steps(run, 1, 30, **HUGE)
    lines: list[str] = []
    monitor = Monitor(run, lines.append, live=True)
    monitor.look(NOW, diagnose=True)
    try:
        text = urlopen(str(monitor.url), timeout=10).read().decode()
    finally:
        monitor.close(1.0)
    assert lines[0] == f"metrics for Prometheus at {monitor.url}"
    assert told(run, "exporter") == [{"prometheus": monitor.url}]
    assert 'stoker_gradient_norm{run="small"} 200000.0' in text
    assert 'stoker_alert_firing{rule="gradient_norm",run="small",severity="critical"} 1.0' in text


def test_events_of_weeks_ago_still_count(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    rows(run, "event", event("saved", 1), event("went_back", 1), event("went_back", 1))
    steps(run, 2, 600)
    monitor = Monitor(run, lambda line: None, live=True)
    monitor.look(NOW)
    monitor.close(1.0)
    assert monitor.picture.counts["rollbacks"] == 2
    assert monitor.picture.counts["checkpoints"] == 1
    assert wait_for(lambda: monitor.picture.step) == 600


def test_a_log_on_a_full_disk_is_told_of_once_and_the_monitor_goes_on(tmp_path: Path) -> None:
    run = make_run(tmp_path, "exporters: {json_logs: {enabled: true, path: /dev/full}}\n")
    steps(run, 1, 60, **HUGE)
    lines: list[str] = []
    monitor = Monitor(run, lines.append, live=True)
    for _ in range(3):
        monitor.look(NOW, diagnose=True)
    monitor.close(5.0)
    [said] = [line for line in lines if "/dev/full" in line]
    assert "No space left on device" in said
    assert [one["rule"] for one in told(run, "alert")] == ["gradient_norm"]


def test_lines_that_a_full_disk_did_not_take_are_written_whole_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes half of a line, then nothing, and has room again."""
    said: list[str] = []
    log = JsonLog(tmp_path / "log.jsonl", "small", 1, said.append)
    log.step({"step": 1, "loss": 3.0, "time": NOW})
    log.flush()
    room, write = [20], os.write

    def full(file: int, content: bytes) -> int:
        taken, room[0] = content[: room[0]], 0
        if not taken:
            raise OSError(28, "No space left on device")
        return write(file, taken)

    with monkeypatch.context() as patched:
        patched.setattr("stoker.monitoring.json_logs.os.write", full)
        log.step({"step": 2, "loss": 3.0, "time": NOW})
        log.flush()
        log.flush()
    log.step({"step": 3, "loss": 3.0, "time": NOW})
    log.close()
    written = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [one["stoker"]["step"] for one in written] == [1, 2, 3]
    assert len(said) == 1


def test_a_request_to_go_back_that_cannot_be_written_is_made_again_later(tmp_path: Path) -> None:
    run = make_run(tmp_path, "recovery: {on_finding: rollback}\n")
    diverging(run)
    run.asked_back.mkdir()  # as a disk that is full: nothing can be put there
    lines: list[str] = []
    monitor = Monitor(run, lines.append, live=True)
    monitor.look(NOW, diagnose=True)
    assert any("could not be asked to go back" in line for line in lines)
    assert told(run, "asked_back") == []
    run.asked_back.rmdir()
    monitor.look(NOW + 10, diagnose=True)
    monitor.close(5.0)
    assert json.loads(run.asked_back.read_text())["number"] == 1
    assert len(told(run, "asked_back")) == 1


@pytest.mark.parametrize(
    "row",
    [{"loss": 3.0, "time": None}, {"loss": None}, {"time": NOW, "loss": float("inf"), "seconds": None}],
    ids=["no-time", "no-loss", "no-seconds"],
)
def test_rows_of_an_older_format_are_watched_as_far_as_they_go(tmp_path: Path, row: dict[str, Any]) -> None:
    run = make_run(tmp_path, "exporters: {json_logs: {enabled: true}}\n")
    rows(run, "step", *({**row, "step": step} for step in range(1, 60)))
    rows(run, "event", {"event": "failure", "detail": None}, {"event": "of_a_later_version", "step": None})
    monitor = Monitor(run, lambda line: None, live=True)
    monitor.look(NOW, diagnose=True)
    assert monitor.outlook().step == 59
    monitor.close(5.0)
    log = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert [one["stoker"]["step"] for one in log if one["event.dataset"] == "stoker.step"] == [10, 20, 30, 40, 50]


def test_a_rank_whose_clock_is_days_ahead_makes_no_alert(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    steps(run, 1, 60)
    steps(run, 1, 60, rank=1, time=lambda step: NOW + 1e6 + step / 10)
    assert look(run, diagnose=True) == []
