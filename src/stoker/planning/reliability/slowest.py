"""The slowest of many: a step ends when its last rank has ended, so its length grows with their number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_POINTS = 4096
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Slowness:
    """How much longer than an average rank's a step is, as shares of it."""

    lasting: float
    """Because ranks differ for good."""
    jitter: float
    """Because they, and the network, vary from step to step."""

    @property
    def total(self) -> float:
        """Of both."""
        return self.lasting + self.jitter


@lru_cache(maxsize=256)
def slowness_of(ranks: int, per_node: int, spread: float, jitter: float, network: float) -> Slowness:
    """The expected maximum over all ranks, less the mean of one.

    A rank takes 1 + s·Z + j·Z' (Z lasting, Z' anew each step, both standard normal), its node is delayed by an
    exponential time of mean `network`.
    """
    both = math.hypot(spread, jitter)
    lasting = spread * expected_maximum(ranks)
    if network == 0:
        return Slowness(lasting, both * expected_maximum(ranks) - lasting)
    return Slowness(lasting, _with_delays(ranks // per_node, per_node, both, network) - lasting)


@lru_cache(maxsize=256)
def expected_maximum(count: int) -> float:
    """Of `count` independent standard normal values."""
    if count == 1:
        return 0.0
    return _with_delays(count, 1, 1.0, 0.0)


def draw_maximum(count: int, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """The maximum of `count` standard normal values, for each of these uniform ones."""
    quantiles = np.clip(uniform, 1e-12, 1 - 1e-12) ** (1 / count)
    return np.array([_NORMAL.inv_cdf(min(q, 1 - 1e-15)) for q in quantiles])


def _with_delays(nodes: int, per_node: int, deviation: float, delay: float) -> float:
    """E[max over nodes of (the slowest of its ranks + an exponential delay)] = x1 - ∫ F(x)^nodes dx up to x1."""
    ranks = nodes * per_node
    lowest = -9 * deviation
    highest = deviation * (math.sqrt(2 * math.log(ranks + 1)) + 9) + delay * (math.log(nodes + 1) + 40)
    x = np.linspace(lowest, highest, _POINTS)
    if deviation > 0:
        one = np.array([0.5 * math.erfc(-value / deviation / math.sqrt(2)) for value in x])
    else:
        one = (x >= 0).astype(np.float64)
    node = one**per_node
    if delay > 0:
        node = _delayed(node, (x[1] - x[0]) / delay)
    return float(highest - np.trapezoid(node**nodes, x))


def _delayed(cumulative: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """The distribution after adding an exponential delay; `width` is that of the grid, in mean delays.

    With F' = (G - F) / delay, solved from point to point with G linear between them.
    """
    kept = math.exp(-width)
    of_next = 1 - (1 - kept) / width
    of_this = (1 - kept) / width - kept
    result = np.empty_like(cumulative)
    value = 0.0
    previous = float(cumulative[0])
    for position, current in enumerate(cumulative.tolist()):
        value = kept * value + of_this * previous + of_next * current
        result[position] = value
        previous = current
    return result
