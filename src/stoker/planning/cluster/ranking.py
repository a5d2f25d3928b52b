"""Whether the model would have picked the right layout: rank correlation and regret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ranking:
    """Layouts of one model on one number of accelerators, measured by one source."""

    source: str
    what: str
    layouts: int
    spearman: float
    regret: float
    """Measured time of the layout that the model would pick, over that of the best one, less 1."""


def ranking(source: str, what: str, measured: Sequence[float], predicted: Sequence[float]) -> Ranking:
    """Of seconds a token, measured and predicted, of at least two layouts."""
    pick = min(range(len(predicted)), key=lambda i: predicted[i])
    return Ranking(source, what, len(measured), spearman(measured, predicted), measured[pick] / min(measured) - 1)


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Rank correlation, ties at their mean rank; 1 where one side has nothing but ties."""
    a, b = _ranks(left), _ranks(right)
    mean = (len(a) + 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    spread = (sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)) ** 0.5
    return covariance / spread if spread else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for position in range(start, end + 1):
            ranks[order[position]] = (start + end) / 2 + 1
        start = end + 1
    return ranks
