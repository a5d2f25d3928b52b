"""Turning long series into few points that draw the same picture, and packing them for the page.

Steps are put into as many buckets as a chart has pixels. Of each bucket its lowest and its highest
value are kept, in the order they came, so that a spike of one step is seen however long the run; and
its mean, from which the page draws the smoothed curve. A short series is kept whole.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

PIXELS = 1500
LARGEST_MARK_COUNT = 2000


class Sampling:
    """Which of `count` values in order stand for all of them."""

    def __init__(self, count: int, pixels: int = PIXELS) -> None:
        self.count = count
        self.size = 1 if count <= 2 * pixels else -(-count // pixels)
        """Values in a bucket; 1 keeps every value."""
        self.buckets = -(-count // self.size)
        if self.size == 1:
            self.places: Integers = np.arange(count)
        else:
            starts = np.arange(self.buckets) * self.size
            halves = np.minimum(starts + self.size // 2, count - 1)
            self.places = np.stack([starts, halves], axis=1).ravel()

    def points(self, values: Numbers) -> Numbers:
        """The points to draw at `places`: values, or lowest and highest of each bucket as they came."""
        if self.size == 1:
            return values
        table = self._table(values)
        low = np.where(np.isfinite(table), table, np.inf)
        high = np.where(np.isfinite(table), table, -np.inf)
        lowest, highest = low.argmin(axis=1), high.argmax(axis=1)
        rows = np.arange(self.buckets)
        first, second = np.minimum(lowest, highest), np.maximum(lowest, highest)
        pairs = np.stack([table[rows, first], table[rows, second]], axis=1)
        pairs[~np.isfinite(table).any(axis=1)] = np.nan
        return pairs.ravel()

    def means(self, values: Numbers) -> Numbers:
        """Mean of the finite values of each bucket [buckets]; NaN where there are none."""
        table = self._table(values)
        finite = np.isfinite(table)
        count = finite.sum(axis=1)
        total = np.where(finite, table, 0.0).sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def _table(self, values: Numbers) -> Numbers:
        padded = np.full(self.buckets * self.size, np.nan)
        padded[: self.count] = values
        return padded.reshape(self.buckets, self.size)


def pack_float32(values: Numbers) -> str:
    """Base64 of little-endian float32; NaN stands for no value."""
    finite = np.where(np.isfinite(values), values, np.nan)
    with np.errstate(over="ignore"):
        return base64.b64encode(finite.astype("<f4").tobytes()).decode()


def pack_float64(values: Numbers) -> str:
    """Base64 of little-endian float64."""
    return base64.b64encode(values.astype("<f8").tobytes()).decode()


@dataclass
class Payload:
    """What the page's script gets: axes that lines refer to by name, and marks on them."""

    axes: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each axis the packed float64 places of its points by unit: `step`, `tokens`, `hours`."""
    marks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each axis what happened at which step: `events`, and steps that were `non_finite`."""
    charts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_axis(self, name: str, places: dict[str, Numbers]) -> None:
        """Add the axis `name`, leaving out units whose places are not known."""
        self.axes[name] = {unit: pack_float64(at) for unit, at in places.items() if np.isfinite(at).all()}

    def as_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"axes": self.axes, "marks": self.marks, "charts": self.charts}


def line(label: str, axis: str, sampling: Sampling, values: Numbers, colour: int = 0) -> dict[str, Any]:
    """One curve of a chart: raw points, and bucket means when the points are not all values."""
    packed = {"label": label, "axis": axis, "colour": colour, "raw": pack_float32(sampling.points(values))}
    if sampling.size > 1:
        packed["mean"] = pack_float32(sampling.means(values))
    return packed


def line_chart(lines: list[dict[str, Any]], unit: str, **options: Any) -> dict[str, Any]:
    """A chart of curves. Options the page knows: `smooth` (draw a smoothed curve over the raw one),
    `points` (draw dots), `format` (how figures are spelled), `limit` (a dashed level), `floor` (lowest y)."""
    return {"kind": "lines", "lines": lines, "unit": unit, **options}


def heat_map(steps: Numbers, rows: dict[str, Numbers], columns: int = 400) -> dict[str, Any]:
    """Rows by name over `steps`; of each bucket of steps the largest value."""
    sampling = Sampling(len(steps), max(1, columns // 2))
    starts = np.arange(sampling.buckets) * sampling.size
    largest = [_largest(sampling, values) for values in rows.values()]
    return {
        "kind": "heat",
        "rows": list(rows),
        "steps": pack_float64(steps[starts]),
        "last": float(steps[-1]),
        "values": pack_float32(np.concatenate(largest)),
    }


def _largest(sampling: Sampling, values: Numbers) -> Numbers:
    points = sampling.points(values)
    if sampling.size == 1:
        return points
    pairs = points.reshape(-1, 2)
    return np.where(np.isnan(pairs[:, 0]), pairs[:, 1], np.fmax(pairs[:, 0], pairs[:, 1]))
