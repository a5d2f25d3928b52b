"""Latency and time per byte, from measured times."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.bench.rounds import Cost

Fit = tuple[float, float]
"""α, seconds a round, and β, seconds a byte."""


def fit(costs: Sequence[Cost], seconds: Sequence[float]) -> Fit:
    """α and β, neither below zero, with the least sum of squared relative errors of rounds · α + bytes · β."""
    rows = [(c.rounds / s, c.length / s) for c, s in zip(costs, seconds, strict=True)]
    rr, rb, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    r, b = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = rr * bb - rb * rb
    if determinant > 1e-12 * rr * bb:
        alpha, beta = (r * bb - b * rb) / determinant, (b * rr - r * rb) / determinant
        if alpha >= 0 and beta >= 0:
            return alpha, beta
    # The least is where one of them is zero.
    alone = [(r / rr if rr else 0.0, 0.0), (0.0, b / bb if bb else 0.0)]
    return min(alone, key=lambda one: sum((x * one[0] + y * one[1] - 1) ** 2 for x, y in rows))


def worst_error(costs: Sequence[Cost], seconds: Sequence[float], found: Fit) -> float:
    """The largest distance of the fit from a time, as a share of the time."""
    alpha, beta = found
    return max(abs(c.rounds * alpha + c.length * beta - s) / s for c, s in zip(costs, seconds, strict=True))
