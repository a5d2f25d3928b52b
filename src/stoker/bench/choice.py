"""Which algorithm is the fastest for a size and an arrangement of ranks, by what was measured."""

from __future__ import annotations

import math
from itertools import pairwise

from stoker.bench.algorithms import Operation, Topology, cost, names
from stoker.bench.results import Choice, MeasuredAlgorithm, Measurement, Measurements
from stoker.errors import BadInput

_NEAR = 1.01
"""A size at which another algorithm becomes the fastest is found to this factor."""


def choose(
    size: int, ranks: int, node_size: int, measurements: Measurements, operation: Operation = "all_reduce"
) -> str:
    """The algorithm for a buffer of `size` bytes, `library` among them.

    Of the arrangement itself, times are read off between measured sizes. Of another they are those of the α-β model
    with what was fitted to the arrangement nearest in number of ranks. Raises `BadInput` where `operation` was not
    measured at all.
    """
    topology = Topology(ranks, node_size)
    measured = nearest(measurements, operation, topology)
    return fastest(size, topology, measured)


def nearest(measurements: Measurements, operation: Operation, topology: Topology) -> Measurement:
    """The measurement of `topology`, or of the one most like it; of several the newest."""

    def distance(one: Measurement) -> tuple[object, ...]:
        levels = one.topology.has_levels != topology.has_levels
        exact = one.topology != topology
        return exact, levels, abs(math.log(one.ranks / topology.ranks)), abs(one.node_size - topology.node_size)

    of_operation = [one for one in measurements.measurements if one.operation == operation]
    if not of_operation:
        known = sorted({one.operation for one in measurements.measurements})
        raise BadInput(
            f"{operation} was not measured (measured: {', '.join(known) or 'nothing'}); "
            f"run `stoker bench collectives --op {operation}` first"
        )
    newest_first = sorted(of_operation, key=lambda one: one.measured_at, reverse=True)
    return min(newest_first, key=distance)


def fastest(size: int, topology: Topology, measured: Measurement) -> str:
    """The algorithm that is expected to take the least time."""
    # The hierarchical one is not for ranks on one node, though it may have been measured on several.
    possible = {*names(measured.operation, topology), "library"}
    candidates = [one for one in measured.algorithms if one.name in possible]
    return min(candidates, key=lambda one: expected_seconds(one, size, topology, measured)).name


def expected_seconds(algorithm: MeasuredAlgorithm, size: int, topology: Topology, measured: Measurement) -> float:
    """Time of a buffer of `size` bytes: between measured sizes on a line in logarithms, otherwise by the fit."""
    points = algorithm.points
    if topology == measured.topology and points[0].bytes <= size <= points[-1].bytes:
        for low, high in pairwise(points):
            if size <= high.bytes:
                part = math.log(size / low.bytes) / math.log(high.bytes / low.bytes)
                return float(low.median_seconds ** (1 - part) * high.median_seconds**part)
        return points[-1].median_seconds
    modelled = _modelled(algorithm, size, topology, measured.operation)
    if topology != measured.topology:
        return modelled
    # Beyond what was measured the model goes on from the last measured time.
    end = points[0] if size < points[0].bytes else points[-1]
    at_end = _modelled(algorithm, end.bytes, topology, measured.operation)
    return modelled * end.median_seconds / at_end if at_end > 0 else end.median_seconds


def _modelled(algorithm: MeasuredAlgorithm, size: int, topology: Topology, operation: Operation) -> float:
    rounds, length = cost(operation, algorithm.name, topology, size)
    return rounds * algorithm.alpha_seconds + length * algorithm.beta_seconds_per_byte


def crossovers(topology: Topology, measured: Measurement) -> tuple[Choice, ...]:
    """The fastest algorithm of each range of sizes, from the smallest measured size to the largest."""
    sizes = [point.bytes for point in measured.algorithms[0].points]
    found = [Choice(from_bytes=sizes[0], algorithm=fastest(sizes[0], topology, measured))]
    for low, high in pairwise(sizes):
        steps = max(1, math.ceil(math.log(high / low, 2)))
        for step in range(1, steps + 1):
            size = high if step == steps else round(low * (high / low) ** (step / steps))
            name = fastest(size, topology, measured)
            if name != found[-1].algorithm:
                before = round(low * (high / low) ** ((step - 1) / steps))
                found.append(Choice(from_bytes=_border(before, size, name, topology, measured), algorithm=name))
    return tuple(found)


def _border(low: int, high: int, name: str, topology: Topology, measured: Measurement) -> int:
    """From where on `name`, the fastest at `high` and not at `low`, is the fastest."""
    while high > low * _NEAR and high - low > 1:
        middle = round(math.sqrt(low * high))
        if fastest(middle, topology, measured) == name:
            high = middle
        else:
            low = middle
    return high
