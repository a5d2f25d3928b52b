"""Splitting the layers of a model into stages of equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm

from stoker.errors import BadInput


def balance(
    layer_costs: Sequence[float],
    stages: int,
    *,
    first_cost: float = 0.0,
    last_cost: float = 0.0,
    stage_to_rank: Sequence[int] | None = None,
) -> tuple[range, ...]:
    """The layers of each stage: consecutive, at least one each, with the largest stage cost as small as possible.

    `first_cost` is what the first stage does besides its layers (embedding), `last_cost` the last stage (head and
    loss), in the unit of `layer_costs`. Among the splits with the least largest stage cost it is one with the least
    sum of squared stage costs. With `stage_to_rank` layers are then moved while that makes the largest cost of
    a rank smaller and the largest stage cost no larger: step by step, so not proved to be the best for the ranks.
    Raises `BadInput` when there are fewer layers than stages, or a cost is negative or not finite.
    """
    if not 1 <= stages <= len(layer_costs):
        raise BadInput(f"{len(layer_costs)} layers cannot fill {stages} stages with at least one layer each")
    if stage_to_rank is not None and len(stage_to_rank) != stages:
        raise BadInput(f"stage_to_rank names the ranks of {len(stage_to_rank)} stages, expected {stages}")
    costs = _Costs(layer_costs, stages, first_cost, last_cost)
    cuts = costs.evenest_cuts(costs.least_largest())
    if stage_to_rank is not None:
        cuts = costs.moved_for_ranks(cuts, stage_to_rank)
    return tuple(map(range, cuts[:-1], cuts[1:]))


class _Costs:
    """Costs as whole numbers, so that sums are exact and ties are ties."""

    def __init__(self, layer_costs: Sequence[float], stages: int, first_cost: float, last_cost: float) -> None:
        given = [*layer_costs, first_cost, last_cost]
        if not all(0 <= cost < float("inf") for cost in given):
            raise BadInput("costs of layers must be finite and not negative")
        exact = [Fraction(cost) for cost in given]
        unit = lcm(*(cost.denominator for cost in exact))
        *layers, self.first, self.last = (int(cost * unit) for cost in exact)
        self.sums = [0, *accumulate(layers)]
        self.layers, self.stages = len(layers), stages

    def stage(self, stage: int, start: int, stop: int) -> int:
        """Cost of `stage` when it has the layers from `start` to before `stop`."""
        extra = (self.first if stage == 0 else 0) + (self.last if stage == self.stages - 1 else 0)
        return self.sums[stop] - self.sums[start] + extra

    def least_largest(self) -> int:
        """The smallest possible largest stage cost, by bisection."""
        low, high = 0, self.sums[-1] + self.first + self.last
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(middle) else (middle + 1, high)
        return low

    def _fits(self, most: int) -> bool:
        """Whether stages of at most `most` can hold all layers: each takes as many as it can."""
        stop = 0
        for stage in range(self.stages):
            start, left_for_later = stop, self.stages - stage - 1
            stop = start + 1
            if self.stage(stage, start, stop) > most:
                return False
            while stop < self.layers - left_for_later and self.stage(stage, start, stop + 1) <= most:
                stop += 1
        return stop == self.layers

    def evenest_cuts(self, most: int) -> list[int]:
        """Where to cut for the least sum of squared stage costs, none above `most` (dynamic programming)."""
        best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]  # per stage: stop -> (sum of squares, its start)
        for stage in range(self.stages):
            row: dict[int, tuple[int, int]] = {}
            for start, (squares, _) in best[-1].items():
                for stop in range(start + 1, self.layers - (self.stages - stage - 1) + 1):
                    cost = self.stage(stage, start, stop)
                    if cost > most:
                        break
                    candidate = (squares + cost * cost, start)
                    row[stop] = min(row.get(stop, candidate), candidate)
            best.append(row)
        cuts = [self.layers]
        for row in reversed(best[1:]):
            cuts.append(row[cuts[-1]][1])
        return cuts[::-1]

    def moved_for_ranks(self, cuts: list[int], stage_to_rank: Sequence[int]) -> list[int]:
        """Cuts with evener ranks: hand one layer's place from one stage to another while that helps."""
        most = max(self._stage_costs(cuts))
        value = self._unevenness(cuts, stage_to_rank)
        while True:
            best_value, best_cuts = min(
                ((self._unevenness(moved, stage_to_rank), moved) for moved in self._neighbours(cuts, most)),
                default=(value, cuts),
            )
            if best_value >= value:
                return cuts
            value, cuts = best_value, best_cuts

    def _neighbours(self, cuts: list[int], most: int) -> list[list[int]]:
        """Splits in which all cuts between two stages have moved by one layer, no stage above `most`."""
        found = []
        for first in range(1, self.stages):
            for last in range(first, self.stages):
                for by in (-1, 1):
                    moved = [*cuts[:first], *(cut + by for cut in cuts[first : last + 1]), *cuts[last + 1 :]]
                    filled = moved[first - 1] < moved[first] and moved[last] < moved[last + 1]
                    if filled and max(self._stage_costs(moved)) <= most:
                        found.append(moved)
        return found

    def _stage_costs(self, cuts: list[int]) -> list[int]:
        return [self.stage(stage, cuts[stage], cuts[stage + 1]) for stage in range(self.stages)]

    def _unevenness(self, cuts: list[int], stage_to_rank: Sequence[int]) -> tuple[int, int]:
        """The largest cost of a rank, then the sum of squared costs of the ranks."""
        ranks = dict.fromkeys(stage_to_rank, 0)
        for rank, cost in zip(stage_to_rank, self._stage_costs(cuts), strict=True):
            ranks[rank] += cost
        return max(ranks.values()), sum(cost * cost for cost in ranks.values())
