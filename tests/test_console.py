"""What people see: bars on a terminal, lines elsewhere, tables that line up."""

from __future__ import annotations

import io
import json
import os
import re

import pytest
from rich.console import Console

from stoker import console
from stoker.console import Watched, amount, duration, print_error, print_json, progress_for, table
from stoker.progress import Silent


def watched(terminal: bool) -> tuple[Watched, io.StringIO]:
    stream = io.StringIO()
    return Watched(Console(file=stream, force_terminal=terminal, width=120, markup=False, highlight=False)), stream


def test_a_bar_shows_how_far_the_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_REDRAW_SECONDS", 0.0)
    shown, stream = watched(terminal=True)
    with shown.task("train", 400, "steps") as task:
        task.describe("loss 2.125")
        task.advance(120)
    drawn = stream.getvalue()
    assert "train" in drawn
    assert "120/400 steps" in drawn
    assert "loss 2.125" in drawn


def test_bars_of_work_inside_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_REDRAW_SECONDS", 0.0)
    shown, stream = watched(terminal=True)
    with shown.task("outer", 2, "files") as outer:
        with shown.task("inner", None, "documents") as inner:
            inner.advance(3)
            shown.say("[bold]as it is[/bold]")
        outer.advance()
    with shown.task("next", 1, "files") as task:
        task.advance()
    drawn = stream.getvalue()
    for text in ("outer", "inner", "3 documents", "1/2 files", "next", "[bold]as it is[/bold]"):
        assert text in drawn


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    shown, stream = watched(terminal=False)
    with shown.task("train", 400, "steps") as task:
        task.advance(100)  # done in an earlier run
        for step in range(300):
            now[0] += 0.1
            task.describe(f"loss {step}")
            task.advance()
    lines = stream.getvalue().splitlines()
    found = re.fullmatch(r"train: (\d+)/400 steps  10 steps/s  (\d+) s left  loss \d+", lines[0])
    assert found is not None
    assert int(found[1]) == pytest.approx(200, abs=2)
    assert int(found[2]) == pytest.approx(20, abs=1)
    assert len(lines) in (3, 4)
    assert lines[-1] == "train: 400 steps in 30 s"


def test_of_work_that_cannot_be_counted_only_the_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    shown, stream = watched(terminal=False)
    with shown.task("train the tokenizer", None, "") as task:
        now[0] += 57
        task.advance()
    assert stream.getvalue() == "train the tokenizer: 57 s\n"


@pytest.mark.parametrize(
    ("unit", "each_second", "told"),
    [("bytes", 3_450_000, "3.5 MB/s"), ("documents", 1234, "1,234 documents/s"), ("steps", 0.25, "0.25 steps/s")],
)
def test_a_rate_is_told_in_the_unit_of_the_work(
    monkeypatch: pytest.MonkeyPatch, unit: str, each_second: float, told: str
) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    for terminal in (False, True):
        shown, stream = watched(terminal=terminal)
        with shown.task("work", 100 * each_second, unit) as task:
            for _ in range(30):
                now[0] += 1
                task.advance(each_second)
        assert told in stream.getvalue()


def test_a_rate_counts_only_what_this_process_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of an earlier run may turn up between the parts of this one, as the finished splits of a corpus do."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    for terminal in (False, True):
        shown, stream = watched(terminal=terminal)
        with shown.task("tokenise", 1e9, "bytes") as task:
            for _ in range(40):
                now[0] += 1
                task.skip(20e6)
                task.advance(3.5e6)
        told = stream.getvalue()
        assert "3.5 MB/s" in told
        assert set(re.findall(r"[\d.]+ MB/s", told)) == {"3.5 MB/s"}
        assert "/1,000.0 MB" in told


def test_work_done_within_a_second_leaves_no_line() -> None:
    shown, stream = watched(terminal=False)
    with shown.task("quick", 1, "files") as task:
        task.advance()
    assert stream.getvalue() == ""


def test_the_bar_goes_when_the_work_fails() -> None:
    shown, _ = watched(terminal=True)

    def fail() -> None:
        with shown.task("train", 4, "steps"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert shown._bars is None
    with shown.task("again", 4, "steps") as task:
        task.advance()


def test_no_thread_draws_so_that_processes_can_be_forked() -> None:
    import threading

    before = threading.active_count()
    shown, _ = watched(terminal=True)
    with shown.task("train", 4, "steps") as task:
        task.advance()
        assert threading.active_count() == before


def test_nobody_watches_json_or_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert isinstance(progress_for(json_wanted=True), Silent)
    assert isinstance(progress_for(json_wanted=False), Watched)
    monkeypatch.setenv("RANK", "1")
    assert isinstance(progress_for(json_wanted=False), Silent)


def test_columns_line_up_also_with_chinese() -> None:
    text = table(["source", "tokens", "weight"], [["english", 1234567, 0.5], ["中文", 7, 12.25]])
    assert text.splitlines() == [
        "source      tokens  weight",
        "-------  ---------  ------",
        "english  1,234,567     0.5",
        "中文             7   12.25",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert table(["a", "b"], []) == "a  b\n-  -\n"


def test_json_has_no_figures_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "键": {1: None}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "键": {"1": None}}


def test_an_error_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("a [red]list[/red]: " + "x" * 300 + f"{os.sep}end")
    printed = capsys.readouterr().err
    assert printed == "stoker: a [red]list[/red]: " + "x" * 300 + f"{os.sep}end\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (12.4, "12 s"), (59.6, "1:00"), (185, "3:05"), (8040, "2:14:00"), (-1, "0.0 s")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_amounts_read_well() -> None:
    assert amount(3_400_000, "bytes") == "3.4 MB"
    assert amount(1200, "documents") == "1,200 documents"
