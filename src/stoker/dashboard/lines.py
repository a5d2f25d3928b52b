"""Curves by name, ready to be drawn: `KIND:RANK:COLUMN` or `KIND:RANK:COLUMN:MODULE_OR_SOURCE`.

step:0:loss     step:3:memory_peak_bytes     derived:0:tokens_per_second     evaluation:0:loss:english
module:0:update_to_weight:blocks.0           machine:1:utilisation           routing:0:largest_load:blocks.3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from stoker.dashboard.columns import Integers, Numbers
from stoker.dashboard.packing import packed
from stoker.dashboard.thinning import Buckets
from stoker.dashboard.watched import WatchedRun
from stoker.errors import BadInput

KEYS = {"module": "module", "routing": "module", "evaluation": "source"}
"""Kinds of rows of which there are several for one step, and the column that tells them apart."""
MOST_LINES = 64
MOST_PIXELS = 8192
_ASIDE = ("evaluation", "checkpoint")
_MOST_MARKS = 200


@dataclass(frozen=True)
class Line:
    """A curve: values at ascending steps; NaN where there is none, Inf where what was recorded is not finite."""

    steps: Integers
    values: Numbers


@dataclass(frozen=True)
class Window:
    """What is asked for: a stretch of an axis, drawn on so many pixels."""

    unit: str
    begin: float | None
    end: float | None
    pixels: int


def line_of(run: WatchedRun, name: str) -> Line | None:
    """The curve called `name`; None when the run has none. Raises `BadInput` for what is no name of a curve."""
    kind, _, rest = name.partition(":")
    rank_text, _, rest = rest.partition(":")
    if not rank_text.isdecimal() or len(rank_text) > 7 or not rest:
        raise BadInput(f"a curve is called KIND:RANK:COLUMN, such as step:0:loss; {name!r} is not")
    rank = int(rank_text)
    if not run.wrote(rank):  # nothing is kept of a rank that there is not, however many are asked for
        return None
    if kind == "step":
        return _of_steps(run, rest, rank)
    if kind == "derived":
        return _derived(run, rest, rank)
    if kind in KEYS:
        column, _, key = rest.partition(":")
        table = run.sparse(kind, KEYS[kind], rank).get(key)
        return None if table is None else _of_table(table, column)
    if kind == "machine":
        return _of_table(run.rows_about_steps("machine", rank), rest)
    raise BadInput(f"there are no curves of kind {kind!r}; there are step, derived, machine, {', '.join(KEYS)}")


def _of_steps(run: WatchedRun, column: str, rank: int) -> Line | None:
    if column not in run.rank(rank).names("step"):
        return None
    steps, values = run.history(rank).steps, run.numbers(column, rank)
    recorded = ~np.isnan(values)
    if 2 * int(recorded.sum()) < values.size:  # recorded now and then: no gaps between what was
        return Line(steps[recorded], values[recorded])
    return Line(steps, values)


def _of_table(table: pl.DataFrame, column: str) -> Line | None:
    if column not in table.columns or not table[column].dtype.is_numeric():
        return None
    values = table[column].cast(pl.Float64).fill_nan(float("inf")).fill_null(float("nan"))
    return Line(table["step"].to_numpy().astype(np.int64), np.asarray(values.to_numpy(), dtype=np.float64))


def _derived(run: WatchedRun, column: str, rank: int) -> Line | None:
    if column == "step_seconds":
        return step_seconds(run, rank)
    if column == "waited":
        names = [name for name in run.rank(rank).names("step") if name.startswith("waited.")]
        if not names:
            return None
        parts = [np.nan_to_num(run.numbers(name, rank), posinf=0.0) for name in names]
        return Line(run.history(rank).steps, np.sum(parts, axis=0))
    if column == "tokens_per_second":
        seconds = step_seconds(run, rank)
        if seconds is None or "tokens" not in run.rank(rank).names("step"):
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where(seconds.values > 0, run.numbers("tokens", rank) / seconds.values, np.nan)
        return Line(seconds.steps, rate)
    raise BadInput(f"there is no derived curve {column!r}; there are step_seconds, tokens_per_second and waited")


def step_seconds(run: WatchedRun, rank: int = 0) -> Line | None:
    """Seconds of each step without evaluation and saving; from the rows' times where no row has them."""
    steps, names = run.history(rank).steps, run.rank(rank).names("step")
    if "seconds.total" in names:
        aside = [np.nan_to_num(run.numbers(f"seconds.{one}", rank)) for one in _ASIDE if f"seconds.{one}" in names]
        return Line(steps, run.numbers("seconds.total", rank) - np.sum(aside, axis=0))
    if "time" not in names or steps.size < 2:
        return None
    gaps = np.full(steps.size, np.nan)
    gaps[1:] = np.diff(run.numbers("time", rank)) / np.maximum(np.diff(steps), 1)
    return Line(steps, np.where(gaps >= 0, gaps, np.nan))


def drawn(run: WatchedRun, names: Sequence[str], window: Window) -> bytes:
    """The curves that the run has, thinned out for the window, as `packing` lays them out.

    Each line of the header names its columns: `x`, `raw`, and `mean` where points are not all values.
    """
    if len(names) > MOST_LINES:
        raise BadInput(f"at most {MOST_LINES} curves are drawn at once, not {len(names)}")
    exact: dict[str, Numbers] = {}
    rounded: dict[str, Numbers] = {}
    lines: list[dict[str, object]] = []
    axes: dict[tuple[int, int, int], str] = {}
    for index, name in enumerate(names):
        line = line_of(run, name)
        x = None if line is None or not line.steps.size else run.places(line.steps, window.unit)
        if line is None or x is None:
            continue
        buckets = buckets_in(x, window)
        # Curves of the same rows share their axis; an axis travels once.
        axis = axes.setdefault((id(line.steps), buckets.first, buckets.last), f"x{index}")
        exact.setdefault(axis, x[buckets.places])
        rounded[f"y{index}"] = buckets.points(line.values)
        told: dict[str, object] = {
            "name": name,
            "x": axis,
            "raw": f"y{index}",
            "rows": buckets.last - buckets.first,
        }
        if buckets.size > 1:
            rounded[f"m{index}"] = buckets.means(line.values)
            told["mean"] = f"m{index}"
        lines.append({**told, "not_finite": _marks(line, x, buckets)})
    span = run.axis(window.unit)
    whole = None if span is None or not span.size else [float(span[0]), float(span[-1])]
    return packed({"lines": lines, "span": whole, "unit": window.unit}, exact, rounded)


def buckets_in(x: Numbers, window: Window) -> Buckets:
    """The rows inside the window and one more on either side, so that the curve does not end within the picture."""
    first = 0 if window.begin is None else max(0, int(np.searchsorted(x, window.begin)) - 1)
    last = x.size if window.end is None else min(x.size, int(np.searchsorted(x, window.end, side="right")) + 1)
    return Buckets.of(min(first, max(last - 1, 0)), last, window.pixels)


def _marks(line: Line, x: Numbers, buckets: Buckets) -> list[list[float]]:
    """Place and step of values that are not finite, the first ones where they are many."""
    places = buckets.not_finite(line.values)[:_MOST_MARKS]
    return [[float(x[place]), int(line.steps[place])] for place in places]
