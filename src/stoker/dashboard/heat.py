"""Heat maps: ranks over steps, modules over steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stoker.dashboard.columns import Integers, Numbers
from stoker.dashboard.lines import KEYS, Line, Window, line_of
from stoker.dashboard.moment import absent_ranks
from stoker.dashboard.packing import packed
from stoker.dashboard.watched import WatchedRun

MOST_ROWS = 4096
MOST_ABSENT = 64
"""Where more ranks have left no record, the page says so in words alone."""


def heat_of_ranks(run: WatchedRun, measure: str, window: Window) -> bytes:
    """`measure` (`step:seconds.total`, `derived:waited`) of every rank; of each stretch of steps the largest."""
    kind, _, column = measure.partition(":")
    rows = {str(rank): line_of(run, f"{kind}:{rank}:{column}") for rank in run.ranks[:MOST_ROWS]}
    # A rank that the run has and that wrote nothing is a row too, without a cell: else nobody would miss it.
    absent, count = absent_ranks(run, set(run.ranks), most=MOST_ABSENT)
    absent = absent if count <= MOST_ABSENT else []
    every = {**rows, **dict.fromkeys(map(str, absent))}
    in_order = dict(sorted(every.items(), key=lambda row: int(row[0])))
    return _packed(in_order, window, [str(rank) for rank in absent])


def heat_of_modules(run: WatchedRun, measure: str, window: Window) -> bytes:
    """`measure` (`module:weight_rms`, `routing:entropy`, `step:gradient_norm_by_module`) of every module."""
    kind, _, column = measure.partition(":")
    rows: dict[str, Line | None]
    if kind in KEYS:
        keys = list(run.sparse(kind, KEYS[kind]))[:MOST_ROWS]
        rows = {key: line_of(run, f"{kind}:0:{column}:{key}") for key in keys}
    else:
        prefix = column + "."
        names = [name for name in run.columns.names("step") if name.startswith(prefix)][:MOST_ROWS]
        rows = {name.removeprefix(prefix): line_of(run, f"step:0:{name}") for name in names}
    return _packed(dict(sorted(rows.items(), key=lambda row: _in_order(row[0]))), window)


def _in_order(name: str) -> list[tuple[int, int, str]]:
    """Sorts `blocks.2` before `blocks.10`, and the embedding first."""
    first = {"embedding": 0, "blocks": 1}.get(name.split(".")[0], 2)
    return [
        (first, 0, ""),
        *((0, int(part), "") if part.isdecimal() and len(part) < 10 else (1, 0, part) for part in name.split(".")),
    ]


def _packed(rows: dict[str, Line | None], window: Window, empty: Sequence[str] = ()) -> bytes:
    """`empty` are rows that stand in the map without a cell."""
    known = {
        name: _known(line) for name, line in rows.items() if line is not None and np.isfinite(line.values).any()
    }
    edges = _edges([line.steps for line in known.values()], window)
    columns = max(0, edges.size - 1)
    shown = [name for name in rows if name in known or name in empty] if known else []
    cells = np.full((len(shown), columns), np.nan)
    for row, name in enumerate(shown):
        if name in known:
            cells[row] = _largest(known[name], edges)
    header = {
        "rows": shown,
        "columns_of_steps": columns,
        "missing": [name for name in rows if name not in known],
    }
    return packed(header, {"edges": edges.astype(np.float64)}, {"cells": cells.ravel()})


def _edges(steps: list[Integers], window: Window) -> Integers:
    """Bounds of the columns: each a step, or as many steps as fit a pixel. Rows that are sparse share columns."""
    every = [one for one in steps if one.size]
    if not every:
        return np.zeros(0, dtype=np.int64)
    first, last = min(int(one[0]) for one in every), max(int(one[-1]) for one in every)
    first = first if window.begin is None else max(first, int(window.begin))
    last = last if window.end is None else min(last, int(np.ceil(window.end)))
    if last < first:
        return np.zeros(0, dtype=np.int64)
    spacing = max(1, min(int(np.median(np.diff(one))) if one.size > 1 else 1 for one in every))
    width = max(spacing, -(-(last - first + 1) // window.pixels))
    return np.append(np.arange(first, last + 1, width), last + 1)


def _known(line: Line) -> Line:
    """Without the steps of which the measure was not recorded."""
    recorded = ~np.isnan(line.values)
    return line if recorded.all() else Line(line.steps[recorded], line.values[recorded])


def _largest(line: Line, edges: Integers) -> Numbers:
    begins = np.searchsorted(line.steps, edges)
    found = np.full(edges.size - 1, np.nan)
    filled = np.flatnonzero(begins[1:] > begins[:-1])
    if filled.size:
        stretch = line.values[: begins[-1]]
        # Only stretches that hold a row are bounds: `reduceat` of an empty one would give its neighbour.
        found[filled] = np.maximum.reduceat(stretch, begins[:-1][filled])
    return np.where(np.isfinite(found), found, np.nan)
