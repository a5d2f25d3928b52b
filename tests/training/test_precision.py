"""fp16's loss scale, 16-bit contexts, and the measure of lost updates."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from stoker.errors import EXIT_NON_FINITE, NonFinite
from stoker.layout import Layout
from stoker.parallel import join_world, single_process_world
from stoker.parallel.placement import hold, local
from stoker.parallel.shard import shard
from stoker.recipe import LossScale
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.precision import DynamicLossScale, autocast, compute_dtype, dead_updates, parameter_dtype
from stoker.training.rank import build_model
from stoker.training.step import TrainingStep
from tests.distributed import run_ranks
from tests.training.test_step import SOURCES, VOCABULARY, _global_batch, _recipe, _share

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


def test_dead_updates_are_the_weights_left_unmoved() -> None:
    model = nn.Linear(2, 3)
    held = list(hold(model).values())
    before = [one.parameter.detach().clone() for one in held]
    assert dead_updates(before, held).tolist() == [9, 9]
    with torch.no_grad():
        model.weight[1:, 0] += 1
        model.bias[2] -= 1
    assert dead_updates(before, held).tolist() == [6, 9]
    assert dead_updates([], []).tolist() == [0, 0]


def _counts_on_ranks(rank: int, ranks: int, store: Any, layout: Layout) -> list[float]:
    with join_world(layout, rank, CPU, store, 30) as world:
        model = nn.Sequential(nn.Linear(2, 5, bias=False))
        held = list(hold(model).values())
        shard(model, [], world, None)
        held[0].copies = layout.replicate_size
        before = [one.parameter.detach().clone() for one in held]
        with torch.no_grad():
            if held[0].box[0][1] == 5:  # whoever has the last row
                local(held[0].parameter)[-1] += 1
        return world.sum(dead_updates(before, held)).tolist()


@pytest.mark.parametrize("layout", [Layout(dp_shard=2), Layout(dp_replicate=2)], ids=str)
def test_dead_updates_count_each_weight_once_over_all_ranks(layout: Layout) -> None:
    assert run_ranks(_counts_on_ranks, 2, layout) == [[8.0, 10.0]] * 2


def test_what_is_no_weight_counts_for_no_lost_update() -> None:
    """Routers hold a bias that no optimizer moves."""
    experts = {"experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 8, "bias_update_rate": 0.01}
    recipe = _recipe(precision="pure_bf16", model={"activation": "swiglu", "moe": {"gate": "sigmoid", **experts}})
    world = single_process_world(torch.device("cpu"))
    model = build_model(recipe, VOCABULARY, world)
    assert any(not one.is_parameter for one in model.held)
    train = TrainingStep(
        recipe, SOURCES, model, build_optimizer(model.held, recipe.training), None, PhaseClock(world.device)
    )
    result = train(1, _share(_global_batch(1), world, 1), with_modules=False, stop=False)
    assert result.dead_updates is not None
    assert 0 <= result.dead_updates < 1
