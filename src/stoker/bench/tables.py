"""Measurements in words, for people."""

from __future__ import annotations

from stoker.bench.algorithms import LIBRARY
from stoker.bench.results import Measurement

Row = list[object]

TIMES = ["bytes", "algorithm", "median ms", "quartiles ms", "bus MB/s", "over library"]
FITS = ["algorithm", "α µs a round", "1/β MB/s", "worst fit"]


def times(measured: Measurement) -> list[Row]:
    """A row for each size and algorithm; see `TIMES`. The last column is the library's time over this one's."""
    library = next(one for one in measured.algorithms if one.name == LIBRARY)
    rows: list[Row] = []
    for index, theirs in enumerate(library.points):
        for one in measured.algorithms:
            point = one.points[index]
            quartiles = f"{1e3 * point.lower_seconds:.3g} to {1e3 * point.upper_seconds:.3g}"
            rows.append(
                [
                    point.bytes,
                    one.name,
                    1e3 * point.median_seconds,
                    quartiles,
                    point.bus_bytes_per_second / 1e6,
                    theirs.median_seconds / point.median_seconds,
                ]
            )
    return rows


def fits(measured: Measurement) -> list[Row]:
    """A row for each algorithm; see `FITS`."""
    return [
        [
            one.name,
            1e6 * one.alpha_seconds,
            1e-6 / one.beta_seconds_per_byte if one.beta_seconds_per_byte else None,
            f"{one.worst_fit:.0%}",
        ]
        for one in measured.algorithms
    ]


def choices(measured: Measurement) -> str:
    """Which algorithm for which sizes, in a line."""
    parts = [f"{one.algorithm} from {one.from_bytes:,} bytes" for one in measured.choices]
    return f"fastest on {measured.ranks} ranks, {measured.node_size} on a node: {', '.join(parts)}"
