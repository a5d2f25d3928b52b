"""fp16's loss scale, 16-bit contexts, and the measure of lost updates."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard, distribute_tensor

from stoker.errors import EXIT_NON_FINITE, NonFinite
from stoker.layout import Layout
from stoker.parallel import join_world
from stoker.recipe import LossScale
from stoker.training.precision import DynamicLossScale, autocast, compute_dtype, dead_update_ratio, parameter_dtype
from tests.distributed import run_ranks

CPU = torch.device("cpu")


def test_an_overflow_halves_the_scale() -> None:
    scale = DynamicLossScale(LossScale(initial=1024.0))
    scale.update(overflow=True)
    assert scale.scale == 512.0
    scale.update(overflow=True)
    assert scale.scale == 256.0


def test_the_scale_doubles_after_an_interval_without_overflow() -> None:
    scale = DynamicLossScale(LossScale(initial=8.0, growth_interval=3))
    seen = []
    for overflow in (False, False, False, False, False, True, False, False, False):
        scale.update(overflow)
        seen.append(scale.scale)
    assert seen == [8, 8, 16, 16, 16, 8, 8, 8, 16]


def test_the_run_stops_as_non_finite_when_the_scale_cannot_fall_further() -> None:
    scale = DynamicLossScale(LossScale(initial=4.0, minimum=2.0))
    scale.update(overflow=True)
    assert scale.scale == 2.0
    with pytest.raises(NonFinite, match=r"loss_scale\.minimum is 2") as stopped:
        scale.update(overflow=True)
    assert stopped.value.exit_code == EXIT_NON_FINITE
    assert scale.scale == 2.0


def test_a_resumed_scale_goes_on_as_the_uninterrupted_one() -> None:
    settings = LossScale(initial=8.0, growth_interval=3)
    straight, first, resumed = (DynamicLossScale(settings) for _ in range(3))
    pattern = [False, True, False, False, False, False, True, False]
    for overflow in pattern[:4]:
        straight.update(overflow)
        first.update(overflow)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert all(type(value) is float for value in first.state_dict().values())
    for overflow in pattern[4:]:
        straight.update(overflow)
        resumed.update(overflow)
        assert resumed.state_dict() == straight.state_dict()


@pytest.mark.parametrize(
    ("precision", "computed", "kept"),
    [
        ("fp32", torch.float32, torch.float32),
        ("bf16", torch.bfloat16, torch.float32),
        ("fp16", torch.float16, torch.float32),
        ("pure_bf16", torch.bfloat16, torch.bfloat16),
    ],
)
def test_products_and_weights_have_the_types_of_the_precision(
    precision: Any, computed: torch.dtype, kept: torch.dtype
) -> None:
    assert compute_dtype(precision) == computed
    assert parameter_dtype(precision) == kept
    layer = torch.nn.Linear(4, 4).to(kept)
    with autocast(precision, CPU):
        assert layer(torch.ones(2, 4, dtype=kept)).dtype == computed
    assert layer.weight.dtype == kept
    assert not torch.is_autocast_enabled("cpu")


def test_dead_updates_are_the_share_of_weights_left_unmoved() -> None:
    before = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[4.0, 5.0]])]
    after = [torch.tensor([1.0, 2.5, 3.0]), torch.tensor([[4.0, 5.5]])]
    assert dead_update_ratio(before, after) == 3 / 5
    assert dead_update_ratio(before, before) == 1.0
    assert dead_update_ratio([], []) == 0.0


def _ratio_on_shards(rank: int, ranks: int, store: Any) -> float:
    with join_world(Layout(dp_shard=2), rank, CPU, store, 30) as world:
        assert world.mesh is not None
        mesh = world.mesh["dp_shard"]
        before = distribute_tensor(torch.zeros(5, 2), mesh, [Shard(0)])
        after = distribute_tensor(torch.tensor([[0.0, 1], [0, 1], [0, 1], [1, 1], [1, 1]]), mesh, [Shard(0)])
        return dead_update_ratio([before], [after])


def test_dead_updates_of_sharded_weights_are_counted_over_all_ranks() -> None:
    assert run_ranks(_ratio_on_shards, 2) == [0.3, 0.3]
