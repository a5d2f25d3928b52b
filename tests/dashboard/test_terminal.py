"""The terminal shows the essentials in 80 columns and 24 lines."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from textual.widgets import Static

from stoker.dashboard import WatchedRun
from stoker.dashboard.snapshot import plot, shortened, snapshot_of
from stoker.dashboard.terminal import Watcher, screen_text, watch_in_terminal
from stoker.dashboard.terminal_screen import Screen
from stoker.errors import BadInput
from stoker.run_directory import RunDirectory
from tests.dashboard.watched_runs import write_run


def watched(folder: Path) -> WatchedRun:
    return WatchedRun(RunDirectory(folder))


def test_the_screen_fits_a_terminal_of_80_by_24(tmp_path: Path) -> None:
    write_run(tmp_path, name="<script>[red]anvil[/red]\x1b[31m" + "long" * 40)
    text = screen_text(snapshot_of(watched(tmp_path)), (), 78, 23)
    lines = text.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 78
    assert "\x1b" not in text
    assert "[red]" in lines[0]
    assert "step 100 of 200" in lines[1]


def test_the_screen_is_drawn_and_ends_with_q(tmp_path: Path) -> None:
    write_run(tmp_path)

    async def press() -> str:
        watcher = Watcher(watched(tmp_path))
        watcher.findings, watcher.snapshot = (), snapshot_of(watcher.run)
        screen = Screen(watcher)
        async with screen.run_test(size=(80, 24)) as pilot:
            for _ in range(100):
                await pilot.pause(0.05)
                if "step 100" in str(screen.query_one("#run", Static).content):
                    break
            shown = str(screen.query_one("#run", Static).content)
            await pilot.press("q")
        return shown

    assert "step 100 of 200" in asyncio.run(press())


def test_a_run_without_rows_has_a_screen(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=())
    text = snapshot_of(watched(tmp_path)).as_text(())
    assert "no loss has been recorded yet" in text
    assert "nothing stands out" in text


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_what_is_printed_once_fits_the_terminal_also_in_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    write_run(tmp_path, name="用中文命名的一次训练" * 8)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = watch_in_terminal([tmp_path], as_json=False)
    widths = [cell_len(line) for line in text.splitlines()]
    assert max(widths) <= columns
    assert max(widths) >= columns - 2, "what is there is used"
    assert "\x1b" not in text


def test_a_terminal_that_can_only_print_gets_the_text_and_no_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert "step 100 of 200" in watch_in_terminal([tmp_path], as_json=False)


def test_several_runs_are_too_many_for_a_terminal(tmp_path: Path) -> None:
    for name in "ab":
        write_run(tmp_path / name, steps=2)
    with pytest.raises(BadInput, match="shows one run"):
        watch_in_terminal([tmp_path], as_json=False)


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0], [math.nan, 1.0], list(range(1000)), [1.0] * 50 + [1e9]])
def test_a_curve_of_any_length_is_drawn(values: list[float]) -> None:
    lines = plot(np.array(values, dtype=float), 40, 5)
    assert len(lines) == 5
    assert {len(line) for line in lines} == {50}
    assert any(ord(character) > 0x2800 for line in lines for character in line)


def test_a_spike_does_not_flatten_the_curve_in_a_terminal() -> None:
    values = np.tile([1.0, 2.0], 100)
    values[50] = 1e6
    assert float(plot(values, 40, 5)[0].split()[0]) <= 3


def test_what_would_move_the_cursor_is_not_printed() -> None:
    assert shortened("a\x1b[2Jb\nc", 80) == "a�[2Jb�c"
