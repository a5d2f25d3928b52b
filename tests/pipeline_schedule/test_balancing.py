"""Layers are split into stages of the least largest cost, and none is lost."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import BadInput
from stoker.pipeline_schedule import balance, loop_placement, v_placement

COSTS = st.lists(st.integers(0, 9), min_size=1, max_size=9)
EXTRA = st.integers(0, 12)


def stage_costs(split: tuple[range, ...], costs: list[int], first: int, last: int) -> list[int]:
    sums = [sum(costs[layer] for layer in layers) for layers in split]
    sums[0] += first
    sums[-1] += last
    return sums


def rank_costs(sums: list[int], stage_to_rank: tuple[int, ...]) -> list[int]:
    return [
        sum(cost for cost, rank in zip(sums, stage_to_rank, strict=True) if rank == r) for r in set(stage_to_rank)
    ]


def all_splits(layers: int, stages: int) -> list[tuple[range, ...]]:
    every = combinations(range(1, layers), stages - 1)
    return [tuple(map(range, (0, *cuts), (*cuts, layers))) for cuts in every]


@settings(max_examples=300, deadline=None)
@given(COSTS, EXTRA, EXTRA, st.data())
def test_the_largest_stage_is_as_small_as_brute_force_finds(
    costs: list[int], first: int, last: int, data: st.DataObject
) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    split = balance(costs, stages, first_cost=first, last_cost=last)
    ours = stage_costs(split, costs, first, last)
    every = [stage_costs(other, costs, first, last) for other in all_splits(len(costs), stages)]
    least = min(map(max, every))
    assert max(ours) == least
    assert sum(x * x for x in ours) == min(sum(x * x for x in other) for other in every if max(other) == least)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=4, max_size=10), EXTRA, EXTRA, st.sampled_from([(2, "v"), (2, "loop")]))
def test_ranks_are_evened_without_a_larger_stage(
    costs: list[int], first: int, last: int, kind: tuple[int, str]
) -> None:
    placement = v_placement(kind[0]) if kind[1] == "v" else loop_placement(kind[0], 2)
    plain = stage_costs(balance(costs, 4, first_cost=first, last_cost=last), costs, first, last)
    split = balance(costs, 4, first_cost=first, last_cost=last, stage_to_rank=placement)
    assert [layer for layers in split for layer in layers] == list(range(len(costs)))
    ours = stage_costs(split, costs, first, last)
    assert max(ours) == max(plain)
    assert max(rank_costs(ours, placement)) <= max(rank_costs(plain, placement))


@pytest.mark.parametrize("layers", [*range(3, 10), 30])
@pytest.mark.parametrize("stages", range(1, 5))
@pytest.mark.parametrize("placed", [None, "loop", "v"])
def test_every_layer_is_in_exactly_one_stage(layers: int, stages: int, placed: str | None) -> None:
    if layers < stages or (placed is not None and stages % 2):
        return
    placement = {None: None, "loop": loop_placement(stages // 2, 2), "v": v_placement(stages // 2)}[placed]
    split = balance([1.0] * layers, stages, first_cost=0.3, last_cost=1.7, stage_to_rank=placement)
    assert [layer for stage in split for layer in stage] == list(range(layers))
    assert len(split) == stages
    assert all(len(stage) >= 1 for stage in split)


def test_thirty_equal_layers_on_four_stages() -> None:
    assert sorted(map(len, balance([1.0] * 30, 4))) == [7, 7, 8, 8]
    heavy_head = balance([1.0] * 30, 4, first_cost=0.1, last_cost=3.0)
    assert [len(stage) for stage in heavy_head] == [8, 8, 8, 6]


def test_equal_decimal_costs_are_ties() -> None:
    """0.1 + 0.1 + 0.1 differs from 0.3 in floating point; sums here are exact."""
    assert sorted(len(stage) for stage in balance([0.1] * 23, 5)) == [4, 4, 5, 5, 5]


def test_v_placement_puts_small_stages_on_different_ranks() -> None:
    split = balance([1] * 30, 8, stage_to_rank=v_placement(4))
    sums = [len(stage) for stage in split]
    assert sorted(rank_costs(sums, v_placement(4))) == [7, 7, 8, 8]


@pytest.mark.parametrize(
    ("costs", "stages", "said"),
    [
        ([1.0] * 3, 4, "3 layers cannot fill 4 stages"),
        ([1.0] * 3, 0, "cannot fill 0 stages"),
        ([1.0, -1.0], 1, "not negative"),
        ([1.0, float("nan")], 1, "finite"),
        ([1.0, float("inf")], 1, "finite"),
    ],
)
def test_impossible_splits_are_refused(costs: list[float], stages: int, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        balance(costs, stages)


def test_a_placement_of_another_number_of_stages_is_refused() -> None:
    with pytest.raises(BadInput, match="ranks of 6 stages, expected 4"):
        balance([1.0] * 8, 4, stage_to_rank=v_placement(3))
