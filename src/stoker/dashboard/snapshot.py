"""How a run stands, in lines of text: for a terminal over ssh, or printed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size

from stoker import wording
from stoker.dashboard.columns import Numbers
from stoker.dashboard.lines import step_seconds
from stoker.dashboard.summary import summary_of
from stoker.dashboard.thinning import Buckets
from stoker.dashboard.watched import WatchedRun
from stoker.diagnosis.finding import Finding
from stoker.diagnosis.in_a_line import in_a_line
from stoker.diagnosis.recent_past import as_numbers
from stoker.plural import counted

_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of a braille character by column and by height, the lowest first."""
_RECENT = 64
_EVENTS = 6
_BLOCKS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Snapshot:
    """What a terminal shows of a run."""

    heading: str
    figures: str
    loss: Numbers
    """The history's losses: raw, as recorded."""
    steps: Numbers
    phases: tuple[tuple[str, float], ...]
    """Median seconds of the newest steps, the longest first."""
    memory: str
    events: tuple[str, ...]
    json: dict[str, Any]

    def as_text(self, findings: Sequence[Finding], width: int = 80) -> str:
        """Everything in lines of at most `width` cells."""
        lines = [self.heading, self.figures, ""]
        lines += plot(self.loss, max(10, width - 10), 6, self.steps)
        lines += ["", *phase_bars(self.phases, width), self.memory, ""]
        lines += finding_lines(findings) or ["nothing stands out"]
        lines += ["", *self.events]
        return "\n".join(shortened(line, width) for line in lines)


@np.errstate(over="ignore")  # a record may hold any figure
def snapshot_of(run: WatchedRun) -> Snapshot:
    """The run as it is now."""
    run.refresh()
    summary = summary_of(run)
    planned = summary["planned"]
    of = f" of {wording.exact(planned)}" if planned else ""
    left = ""
    if run.under_way and planned and summary["step_seconds"]:
        seconds = (planned - (summary["step"] or 0)) * summary["step_seconds"]
        left = f"   {wording.duration(seconds)} left"
    rate, each = summary["tokens_per_second"], summary["step_seconds"]
    figures = (
        f"step {wording.exact(summary['step'])}{of}   loss {wording.figure(summary['loss'])}   "
        f"{wording.count(rate)} tokens/s   {wording.duration(each)} a step{left}"
    )
    seconds_line = step_seconds(run)
    return Snapshot(
        heading=f"{summary['name']}   {wording.words(summary['state'])}   {summary['path']}",
        figures=figures,
        loss=run.numbers("loss") if "loss" in run.columns.names("step") else np.zeros(0),
        steps=run.history().steps.astype(np.float64),
        phases=_phases(run),
        memory=_memory(run),
        events=_events(run),
        json={**summary, "slowest_recent_step_seconds": _largest(seconds_line.values if seconds_line else None)},
    )


def _largest(values: Numbers | None) -> float | None:
    recent = np.zeros(0) if values is None else values[-_RECENT:]
    finite = recent[np.isfinite(recent)]
    return float(finite.max()) if finite.size else None


def _phases(run: WatchedRun) -> tuple[tuple[str, float], ...]:
    recent = run.columns.recent("step", _RECENT).tail(_RECENT)
    found = []
    for column in recent.columns:
        if column.startswith("seconds.") and column != "seconds.total":
            values = as_numbers(recent, column)
            finite = values[np.isfinite(values)]
            if finite.size and finite.mean() > 0:
                found.append((column.removeprefix("seconds."), float(finite.mean())))
    return tuple(sorted(found, key=lambda phase: -phase[1]))


def _memory(run: WatchedRun) -> str:
    """The highest of all ranks, and whose it is."""
    told: list[str] = []
    for column, words in (("memory_peak_bytes", "peak memory"), ("host_memory_bytes", "host memory")):
        by_rank = {}
        for rank in run.ranks[:512]:
            values = as_numbers(run.rank(rank).recent("step", 1).tail(1), column)
            if values.size and np.isfinite(values[-1]):
                by_rank[rank] = float(values[-1])
        if by_rank:
            worst = max(by_rank, key=lambda rank: by_rank[rank])
            most = "" if told else f", the most of {len(by_rank)}"  # said once: both are to fit 80 columns
            whose = f" (rank {worst}{most})" if len(by_rank) > 1 else ""
            told.append(f"{words} {wording.size(by_rank[worst])}{whose}")
    return "   ".join(told) or "memory: not recorded"


def _events(run: WatchedRun) -> tuple[str, ...]:
    found = [event for event in run.events() if event.get("event") not in ("clock", "finding")][-_EVENTS:]
    return tuple(
        f"{wording.moment(event.get('time'))}  step {wording.exact(event.get('step'))}  "
        f"{wording.words(str(event.get('event')))}  {in_a_line(event)}".rstrip()
        for event in found
    )


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """The findings above a note, the most important first."""
    told = []
    for finding in findings:
        if finding.severity == "note":
            continue
        cause = "" if finding.cause == "unknown" else f": {wording.words(finding.cause)}"
        first, last = finding.first_step, finding.last_step
        span = "" if last in (first, None) else f" to {wording.exact(last)}"
        where = "" if first is None else f", step {wording.exact(first)}{span}"
        told.append(f"{finding.severity.upper():<8} {wording.words(finding.kind)}{cause}{where}")
    notes = sum(finding.severity == "note" for finding in findings)
    return told + ([counted(notes, "notes")] if notes and not told else [])


def phase_bars(phases: Sequence[tuple[str, float]], width: int) -> list[str]:
    """A bar for each phase, as long as its share of the whole."""
    whole = sum(seconds for _, seconds in phases)
    room = max(4, width - 34)
    lines = []
    for name, seconds in phases[:5]:
        eighths = round(8 * room * seconds / whole) if whole else 0
        bar = "█" * (eighths // 8) + (_BLOCKS[eighths % 8 - 1] if eighths % 8 else "")
        lines.append(f"{wording.words(name):<14} {wording.duration(seconds):>9} {seconds / whole:>4.0%} {bar}")
    return lines


def plot(values: Numbers, width: int, height: int, steps: Numbers | None = None) -> list[str]:
    """A curve in braille dots, two to a cell across and four down, with its highest and lowest value at the side.

    Outliers are cut off at the edge, so that one spike does not flatten the rest.
    """
    width = max(8, width)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return ["no loss has been recorded yet"]
    low, high = _bulk(finite)
    buckets = Buckets.of(0, values.size, width)
    points = buckets.points(values)
    columns = np.minimum((np.arange(points.size) * 2 * width / max(1, points.size)).astype(int), 2 * width - 1)
    cells = [[0] * width for _ in range(height)]
    levels = 4 * height - 1
    for column, value in zip(columns.tolist(), points.tolist(), strict=True):
        if math.isfinite(value):
            share = min(1.0, max(0.0, (value - low) / (high - low)))
            at = round(share * levels)
            cells[height - 1 - at // 4][column // 2] |= _DOTS[column % 2][at % 4]
    labels = {0: wording.figure(high), height - 1: wording.figure(low)}
    lines = [
        f"{labels.get(row, ''):>9} " + "".join(chr(0x2800 + bits) for bits in cells[row]) for row in range(height)
    ]
    if steps is not None and steps.size:
        first, last = f"step {wording.exact(int(steps[0]))}", wording.exact(int(steps[-1]))
        lines.append(" " * 10 + first + last.rjust(max(1, width - len(first))))
    return lines


def _bulk(finite: Numbers) -> tuple[float, float]:
    low, high = float(finite.min()), float(finite.max())
    if finite.size > 30:
        at_low, at_high = np.quantile(finite, [0.02, 0.98])
        spread = float(at_high - at_low) or abs(float(at_high)) * 0.1 or 1.0
        low, high = max(low, float(at_low) - spread), min(high, float(at_high) + spread)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def shortened(line: str, width: int) -> str:
    """The line, cut where the terminal ends; what would move the cursor or colour the text is left out."""
    shown = "".join(character if character.isprintable() else "�" for character in line)
    # In cells, of which a Chinese character takes two.
    return shown if cell_len(shown) <= width else set_cell_size(shown, width - 1).rstrip() + "…"
