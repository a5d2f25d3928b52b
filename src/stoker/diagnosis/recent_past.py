"""What is usual for a run at each of its rows, from the rows before it: medians and deviations that spikes do
not move.

Loss, gradient norm and step time are looked at as logarithms: what counts is by which factor they change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Steps = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

TO_DEVIATIONS = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
MOST = 12.0
"""Nats: one sign alone says no more, for it or against it."""
DEVIATIONS = 8.0
"""So many deviations stand out, as in the recipe's `recovery.deviations`."""
_TAIL_QUANTILE, _TAIL_FACTOR = 0.95, 5.0
_SHORT_PAST = 12
_LEAST_OF_SHORT_PAST = float(np.log(1.5))
_LONGEST_WINDOW, _SHORTEST_WINDOW = 32, 5
_PAST_IN_WINDOWS = 8
_LOOKS_AT_PAST = 8
"""A long past is looked at so many times in its own length."""
_LONG_RECORD = 20_000
_SAMPLES_OF_PAST = 64
_WINDOWS_AT_ONCE = 1024


class Curve(NamedTuple):
    """One measure over a run: `steps` [rows] ascending, `values` [rows]; NaN and Inf are values that were
    recorded."""

    steps: Steps
    values: Numbers

    @property
    def finite(self) -> Curve:
        """Without the rows whose value is not finite."""
        kept = np.isfinite(self.values)
        return self if kept.all() else Curve(self.steps[kept], self.values[kept])

    @property
    def positive(self) -> Curve:
        """Only the rows whose value is finite and above 0, which have a logarithm."""
        kept = np.isfinite(self.values) & (self.values > 0)
        return self if kept.all() else Curve(self.steps[kept], self.values[kept])


@dataclass(frozen=True)
class Usual:
    """What is to be expected of each row, and how far above it a row stands out."""

    expected: Numbers
    """Median of the rows of the window before; NaN where there are fewer than three."""
    limit: Numbers
    """Above `expected`; Inf where it is not known."""


def window_of(rows: int) -> int:
    """How many rows of the past a comparison takes: 32, fewer in a short record, at least 5."""
    return int(min(_LONGEST_WINDOW, max(_SHORTEST_WINDOW, rows // 8)))


def rolling_median(values: Numbers, window: int, fewest: int = 3) -> Numbers:
    """Median of the `window` values up to and with each; NaN where fewer than `fewest` are known."""
    return _numbers(pl.Series(values, nan_to_null=True).rolling_median(window, min_samples=fewest))


def rolling_low(values: Numbers, window: int, fewest: int = 3) -> Numbers:
    """Lower quartile of the `window` values up to and with each; see `rolling_median`.

    What disturbs a machine makes steps longer and none shorter: of a few of them the shorter ones say more.
    """
    return _numbers(
        pl.Series(values, nan_to_null=True).rolling_quantile(0.25, "nearest", window, min_samples=fewest)
    )


def past_quantile(values: Numbers, quantile: float, rows: int, fewest: int = 3) -> Numbers:
    """The quantile over a long past of `rows` rows up to and with each; NaN where fewer than `fewest` are known.

    It changes little from row to row. In a record of over 20,000 rows it is computed eight times in its own
    length, from 64 of its rows, and holds until the next time.
    """
    series = pl.Series(values, nan_to_null=True)
    if values.size <= _LONG_RECORD:
        return _numbers(series.rolling_quantile(quantile, "linear", rows, min_samples=fewest))
    begin = int(np.argmax(np.isfinite(values))) + rows
    early = _numbers(series[:begin].rolling_quantile(quantile, "linear", rows, min_samples=fewest))
    known = np.where(np.isfinite(values), values, 0.0)[begin - rows :]
    stride = max(1, rows // _LOOKS_AT_PAST)
    windows = np.lib.stride_tricks.sliding_window_view(known, rows)[::stride, :: max(1, rows // _SAMPLES_OF_PAST)]
    place = round(quantile * (windows.shape[1] - 1))
    looks = np.concatenate(
        [
            np.partition(windows[at : at + _WINDOWS_AT_ONCE], place, axis=1)[:, place]
            for at in range(0, len(windows), _WINDOWS_AT_ONCE)
        ]
    )
    result = np.concatenate([early[: begin - 1], np.repeat(looks, stride)])[: values.size]
    return np.concatenate([result, np.full(values.size - result.size, looks[-1])])


def past_median(values: Numbers, rows: int, fewest: int = 3) -> Numbers:
    """The median over a long past; see `past_quantile`."""
    return past_quantile(values, 0.5, rows, fewest)


def past_deviation(values: Numbers, rows: int, fewest: int = 3) -> tuple[Numbers, Numbers]:
    """Median and robust standard deviation around it, over a long past."""
    middle = past_median(values, rows, fewest)
    return middle, TO_DEVIATIONS * past_median(np.abs(values - middle), rows, fewest)


def shifted(values: Numbers, rows: int, filling: float = float("nan")) -> Numbers:
    """Each row gets the value of `rows` rows before it (after it where negative)."""
    moved = np.full(values.size, filling)
    if rows >= 0:
        moved[rows:] = values[: max(values.size - rows, 0)]
    else:
        moved[:rows] = values[-rows:]
    return moved


def likelihood(deviations: float) -> float:
    """Nats that so many robust deviations speak for a change: Student's t with three degrees of freedom, whose
    tails are as heavy as a loss curve's, less 1.5 for the freedom to change by any amount."""
    return max(-MOST, min(MOST, 2 * math.log1p(deviations * deviations / 3) - 1.5))


def deviation(values: Numbers) -> float:
    """Robust standard deviation of all `values`; 0 without any."""
    known = values[np.isfinite(values)]
    return float(TO_DEVIATIONS * np.median(np.abs(known - np.median(known)))) if known.size else 0.0


def usual(logs: Numbers, least_deviation: float, least: float) -> Usual:
    """What the past of each row makes of it.

    `logs` [rows] are logarithms. Expected is the median of the window before (32 rows): it lags behind a curve
    that falls, so that the early fall of a loss raises no alarm. The limit is the largest of: 8 robust
    deviations of the residuals of the past 8 windows, around their own median of two windows, so that a trend
    is none; five times their 95th percentile, which is more where small batches give heavy tails; `least`.
    With fewer than 12 rows of past it is at least a factor of 1.5, since their deviation is hardly known.
    """
    window = window_of(logs.size)
    past = _PAST_IN_WINDOWS * window
    expected = shifted(rolling_median(logs, window), 1)
    residuals = logs - expected
    middle = rolling_median(residuals, 2 * window)
    spread = shifted(TO_DEVIATIONS * past_median(np.abs(residuals - middle), past), 1)
    tail = shifted(past_quantile(residuals - middle, _TAIL_QUANTILE, past), 1)
    known = np.arange(logs.size)
    limit = np.maximum(DEVIATIONS * np.fmax(spread, least_deviation), least)
    # A percentile of a few rows is their maximum, and of an excursion's own rows.
    limit = np.where(known >= past // 2, np.fmax(limit, _TAIL_FACTOR * tail), limit)
    limit = np.where(known < _SHORT_PAST, np.fmax(limit, _LEAST_OF_SHORT_PAST), limit)
    return Usual(expected, np.where(np.isfinite(expected), limit, np.inf))


def _numbers(series: pl.Series) -> Numbers:
    return np.asarray(series.cast(pl.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def as_numbers(table: pl.DataFrame, column: str) -> Numbers:
    """A column as float64 [rows], NaN where it has no value; all NaN when the table lacks it."""
    if column not in table.columns:
        return np.full(table.height, np.nan)
    return _numbers(table[column])


def spelled(value: float) -> float | str:
    """A figure for evidence: JSON has no NaN and no Inf."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return float(value)


def as_steps(values: Any) -> Steps:
    """Step numbers as an array."""
    return np.asarray(values, dtype=np.int64)
