"""What people see: progress and messages on stderr, results on stdout.

Bars are redrawn by the work itself and not by a thread, so that processes may be forked while one is shown.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from stoker.plural import counted
from stoker.progress import Progress, Silent, Task

_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 10.0
_WORTH_A_LINE_SECONDS = 1.0


def progress_for(json_wanted: bool) -> Progress:
    """Who watches: nobody with `--json` and on all ranks but the first, else the person at stderr."""
    return Silent() if json_wanted or not _is_first_rank() else Watched()


def _is_first_rank() -> bool:
    return os.environ.get("RANK", "0") == "0"


class Watched:
    """A person watches stderr: bars on a terminal, a line now and then anywhere else."""

    def __init__(self, console: RichConsole | None = None) -> None:
        self._console = console or RichConsole(stderr=True, highlight=False, markup=False, emoji=False)
        self._bars: Bars | None = None
        self._depth = 0

    @contextmanager
    def task(self, name: str, total: float | None, unit: str) -> Iterator[Task]:
        """Show a piece of work until the block ends; one that took over a second leaves a line behind."""
        begun = time.monotonic()
        shown = self._bar(name, total, unit) if self._console.is_terminal else _Lines(self, name, total, unit)
        self._depth += 1
        try:
            yield shown
        finally:
            self._depth -= 1
            shown.close()
            if self._depth == 0 and self._bars is not None:
                self._bars.stop()
                self._bars = None
        seconds = time.monotonic() - begun
        if seconds >= _WORTH_A_LINE_SECONDS:
            done = f"{amount(shown.done, unit)} in " if unit else ""
            self.say(f"{name}: {done}{duration(seconds)}")

    def say(self, line: str) -> None:
        """Print one line, above any bar."""
        self._console.print(Text(line), soft_wrap=True)

    def _bar(self, name: str, total: float | None, unit: str) -> _Bar:
        if self._bars is None:
            self._bars = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[count]}", markup=False),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[detail]}", markup=False),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bars.start()
        return _Bar(self._bars, name, total, unit)


class _Pace:
    """How fast work goes: from when it got under way, which is not when it began."""

    def __init__(self, total: float | None, unit: str) -> None:
        self._total, self._unit = total, unit
        self._advances = 0
        self._start: tuple[float, float] = (0, 0)
        """When it got under way, and what was done by then."""

    def advance(self, now: float, done: float) -> None:
        self._advances += 1
        if self._advances <= 2:  # starting up says nothing about the speed
            self._start = (now, done)

    def skip(self, amount: float) -> None:
        begun, before = self._start
        self._start = (begun, before + amount)

    def told(self, now: float, done: float) -> tuple[str, str]:
        """`3.4 MB/s` and `0:12 left`, both empty where nobody can say."""
        begun, before = self._start
        gained, seconds = done - before, now - begun
        if gained <= 0 or seconds <= 0:
            return "", ""
        rate = _rate(gained / seconds, self._unit)
        return rate, "" if self._total is None else f"{duration((self._total - done) * seconds / gained)} left"


class _Bar:
    """One task as a bar on a terminal."""

    def __init__(self, bars: Bars, name: str, total: float | None, unit: str) -> None:
        self._bars = bars
        self._total = total
        self._unit = unit
        self._drawn = 0.0
        self._pace = _Pace(total, unit)
        self.done: float = 0
        self._detail = ""
        self._id: TaskID = bars.add_task(name, total=total, count=self._count(), detail="")
        self._redraw()

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        self._bars.advance(self._id, amount)
        self._pace.advance(time.monotonic(), self.done)
        if time.monotonic() - self._drawn >= _REDRAW_SECONDS:
            self._redraw()

    def skip(self, amount: float) -> None:
        self.done += amount
        self._bars.advance(self._id, amount)
        self._pace.skip(amount)

    def describe(self, text: str) -> None:
        self._detail = text
        if time.monotonic() - self._drawn >= _REDRAW_SECONDS:
            self._redraw()

    def close(self) -> None:
        self._bars.remove_task(self._id)

    def _count(self) -> str:
        rate, _ = self._pace.told(time.monotonic(), self.done)
        return "  ".join(filter(None, [_of_total(self.done, self._total, self._unit), rate]))

    def _redraw(self) -> None:
        self._bars.update(self._id, count=self._count(), detail=self._detail)
        self._bars.refresh()
        self._drawn = time.monotonic()


class _Lines:
    """One task where no bar can be drawn: a line every ten seconds."""

    def __init__(self, watched: Watched, name: str, total: float | None, unit: str) -> None:
        self._watched = watched
        self._name = name
        self._total = total
        self._unit = unit
        self._said = time.monotonic()
        self._pace = _Pace(total, unit)
        self.done: float = 0
        self._detail = ""

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        now = time.monotonic()
        self._pace.advance(now, self.done)
        if self._unit and now - self._said >= _LINE_SECONDS:
            self._said = now
            told = self._pace.told(now, self.done)
            parts = [f"{self._name}: {_of_total(self.done, self._total, self._unit)}", *told, self._detail]
            self._watched.say("  ".join(part for part in parts if part))

    def skip(self, amount: float) -> None:
        self.done += amount
        self._pace.skip(amount)

    def describe(self, text: str) -> None:
        self._detail = text

    def close(self) -> None:
        pass


def _of_total(done: float, total: float | None, unit: str) -> str:
    if not unit:
        return ""
    if total is None:
        return amount(done, unit)
    if unit == "bytes":
        return f"{done / 1e6:,.1f}/{total / 1e6:,.1f} MB"
    return f"{done:,.0f}/{counted(total, unit)}"


def amount(done: float, unit: str) -> str:
    """`1,200 documents`, `3.4 MB`."""
    return f"{done / 1e6:,.1f} MB" if unit == "bytes" else counted(done, unit)


def _rate(each_second: float, unit: str) -> str:
    if unit == "bytes":
        return f"{each_second / 1e6:,.1f} MB/s"
    return f"{each_second:,.0f} {unit}/s" if each_second >= 10 else f"{each_second:.2g} {unit}/s"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3:05`, `2:14:00`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def print_error(message: str) -> None:
    """One message on stderr."""
    console = RichConsole(stderr=True, highlight=False, markup=False, emoji=False)
    console.print(Text.assemble(("stoker: ", "bold red"), message), soft_wrap=True)


def print_result(text: str) -> None:
    """Results on stdout, exactly as they are; of several ranks only the first prints."""
    if not _is_first_rank():
        return
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """A result for machines: one JSON document on stdout. A figure that is not finite is written as null."""
    print_result(json.dumps(_finite(value), ensure_ascii=False, indent=2, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns of text; numbers to the right. Chinese characters count for the two cells they fill."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    right = [all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in range(len(headers))]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(headers))]
    lines = []
    for row in cells:
        padded = []
        for cell, width, to_right in zip(row, widths, right, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if to_right else cell + space)
        lines.append("  ".join(padded).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return str(value)
