"""The monitor reads what steps were trained on: it names documents, within limits, and keeps what it has named."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from stoker.diagnosis import Evidence, Finding, Remedy, RunRows
from stoker.monitoring.live_diagnosis import Told
from stoker.monitoring.live_text import LONGEST_SECONDS, LiveText, Readings
from stoker.monitoring.monitor import Monitor
from stoker.monitoring.rules import in_brief
from stoker.recipe.loading import load_recipe
from stoker.record import MONITOR, Record
from stoker.run_directory import RunDirectory
from tests.recovery.dynamic_runs import small_corpus
from tests.replayed_runs import AT, run_with


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run that is over, with tags left in the text of one step."""
    folder = tmp_path_factory.mktemp("html")
    corpus = small_corpus(folder / "text")
    return run_with(corpus, folder, f"bad_data@{AT}:what=html,steps=1", learning_rate=5e-3)


def rows_of(run: RunDirectory) -> RunRows:
    return RunRows.load(Record(run.record), None, load_recipe(run.recipe).recipe)


def live_text(run: RunDirectory, seconds: float = LONGEST_SECONDS) -> LiveText:
    text = LiveText.of(run, load_recipe(run.recipe).recipe)
    assert text is not None
    text.begin(1, 96, seconds)
    return text


def finding(**changed: Any) -> Finding:
    seen = Evidence(measure="loss", expected=3.0, observed=5.0, step=70)
    given = {
        "kind": "spike", "severity": "note", "first_step": 70, "last_step": 71, "confidence": 0.9,
        "evidence": (seen,), "remedy": Remedy(action="none"),
    }  # fmt: skip
    return Finding.model_validate({**given, **changed})


def readings_that_said(run: RunDirectory, *said: Finding, monkeypatch: pytest.MonkeyPatch) -> Readings:
    monkeypatch.setattr("stoker.monitoring.live_text.find_all", lambda rows: list(said))
    readings = Readings(run, load_recipe(run.recipe).recipe, 0.01)
    readings.read(rows_of(run))
    return readings


GARBLED = finding(cause="garbled_text", severity="warning", score=9.0, names=("a", "b"), documents=((560, 561),))


def test_the_monitor_names_the_documents_of_a_spike(run: RunDirectory) -> None:
    lines: list[str] = []
    monitor = Monitor(run, lines.append, live=True)
    monitor.look(diagnose=True)
    monitor.close(5.0)
    told = [one["detail"] for one in Record(run.record).events(MONITOR) if one["event"] == "finding"]
    [found] = [one for one in told if one["cause"] == "html_text"]
    assert found["first_step"] == AT
    samples = {sample for first, last in found["documents"] for sample in range(first, last + 1)}
    assert samples
    assert samples <= {span.sample for span in live_text(run).spans(AT)}
    [line] = [one for one in lines if "html_text" in one]
    assert line.startswith(f"found: warning spike since step {AT} (html_text)")
    assert f"samples {found['documents'][0][0]}" in line


def test_text_is_read_before_a_spike_is_told_of_though_the_next_reading_is_not_due(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rows = GARBLED.model_copy(update={"cause": "hard_documents", "names": (), "documents": ()})

    def found(rows: RunRows) -> list[Finding]:
        return [by_rows if rows.text is None else GARBLED]

    for module in ("monitor", "live_text"):
        monkeypatch.setattr(f"stoker.monitoring.{module}.find_all", found)
    told = []
    for seconds in (500, 10_000):
        monitor = Monitor(run, lambda line: None, live=True, writes=False)
        monitor._told = Told()
        monitor._readings._due = time.monotonic() + seconds
        monitor.look()
        told += [one.cause for one in monitor._findings]
    assert told == ["garbled_text", "hard_documents"], "ahead of time by minutes, and no more"


def test_a_reading_takes_its_share_of_a_core_and_no_more(run: RunDirectory) -> None:
    readings, began = Readings(run, load_recipe(run.recipe).recipe, 1e-3), time.process_time()
    assert readings.due
    assert any(one.cause == "html_text" for one in readings.read(rows_of(run)))
    took = time.process_time() - began
    assert not readings.due
    assert readings._due - time.monotonic() == pytest.approx(took / 1e-3, rel=0.5)


def test_without_time_nothing_is_read_and_nothing_is_named(run: RunDirectory) -> None:
    text = live_text(run, seconds=0.0)
    spans = text.spans(AT)
    assert text.read(AT, spans) == []
    assert text.spans(AT) == []
    assert text.digest(1) is not None
    assert text.digest(2) is None
    assert [bool(text.stretches(step, 100)) for step in range(1, 97)].count(True) == 1
    assert text.ran_out


def test_steps_all_along_the_run_are_read_where_there_is_no_time_for_all(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the first ones alone: what is new matters most. Each step takes a second, of 32 there are for 96."""
    clock = [0.0]

    def slow(self: LiveText, span: Any) -> Any:
        clock[0] += 1.0 / 8 / 3
        return [1] * 20

    monkeypatch.setattr("stoker.monitoring.live_text.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(LiveText, "_ids", slow)
    text = live_text(run, seconds=3 * 32.0)
    read = [step for step in range(1, 97) if text.stretches(step, 100)]
    assert clock[0] <= 33
    assert text.ran_out
    assert 10 <= len(read) < 96
    assert max(after - before for before, after in pairwise(read)) < 24
    assert read[-1] > 80


def test_a_corpus_that_goes_away_is_no_error(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    text = live_text(run)
    spans = text.spans(AT)

    def gone(*_: Any) -> Any:
        raise OSError("stale file handle")

    monkeypatch.setattr(LiveText, "_ids", gone)
    assert text.read(AT, spans) == []
    assert text.stretches(AT, 100) == []
    readings = Readings(run, load_recipe(run.recipe).recipe, 0.01)
    assert not any(one.cause == "html_text" for one in readings.read(rows_of(run)))


def test_what_a_reading_named_stays_named_until_the_next_one(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = readings_that_said(run, GARBLED, monkeypatch=monkeypatch)
    [told] = readings.explain([finding()])
    assert (told.cause, told.names, told.documents) == ("garbled_text", ("a", "b"), ((560, 561),))
    [worse] = readings.explain([finding(kind="divergence", severity="alarm", last_step=90)])
    assert (worse.kind, worse.severity, worse.last_step) == ("divergence", "alarm", 90)
    assert (worse.cause, worse.names) == ("garbled_text", ("a", "b"))


def test_another_incident_and_a_better_cause_are_left_as_they_are(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = readings_that_said(run, GARBLED, monkeypatch=monkeypatch)
    elsewhere = finding(first_step=20, last_step=21)
    assert elsewhere in readings.explain([elsewhere])
    jump = finding(cause="learning_rate_jump", score=20.0)
    assert readings.explain([jump]) == [jump]


def test_once_the_run_has_gone_back_nothing_is_known_of_its_documents(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = readings_that_said(run, GARBLED, monkeypatch=monkeypatch)
    readings.forget()
    assert readings.explain([]) == []


def test_names_of_documents_cannot_write_anywhere_else_in_the_log() -> None:
    said = in_brief(GARBLED.model_copy(update={"names": ("a\x1b[2J\nalert", "文章 031.txt", "x" * 5000)}))
    assert "\x1b" not in said
    assert "\n" not in said
    assert "文章 031.txt" in said
    assert len(said) < 400
