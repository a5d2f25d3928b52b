"""Weights that rest in host memory give the bits they gave before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from torch.distributed.tensor import DTensor

from stoker.layout import Layout
from stoker.parallel import Settings, join_world
from stoker.parallel.placement import local
from stoker.recipe.memory import Recomputation
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.precision import DynamicLossScale
from stoker.training.rank import build_model
from stoker.training.step import TrainingStep
from tests.distributed import run_ranks
from tests.parallel import parity
from tests.training.test_step import SOURCES, VOCABULARY, _global_batch, _recipe, _share

pytestmark = pytest.mark.slow

LAYOUTS = [
    (Layout(), ["gpt", "latent attention", "further tokens", "experts, softmax"]),
    (Layout(dp_replicate=2), ["gpt", "experts, softmax"]),
    (Layout(dp_shard=2, ep=2), ["experts, softmax"]),
    (Layout(dp_replicate=2, ep=2), ["experts, softmax"]),
    (Layout(dp_replicate=2, dp_shard=2), ["grouped queries"]),
    (Layout(tp=2), ["q/k norm of all heads"]),
    (Layout(cp=2, pp=2), ["grouped queries"]),
    (Layout(pp=2, pipeline_schedule="zbv"), ["grouped queries", "further tokens"]),
]


def _on_ranks(rank: int, ranks: int, store: Any, layout: Layout, cases: list[str]) -> None:
    torch.set_num_threads(1)
    again = Recomputation(dict.fromkeys(range(6), frozenset()))
    with join_world(layout, rank, parity.CPU, store, 60, host_tensors=True) as world:
        for case in cases:
            expected = parity.step(case, world)
            for settings in (
                Settings(offload_parameters=True),
                Settings(offload_parameters=True, offload_activations=True, recompute=again),
            ):
                parity.assert_same(parity.step(case, world, settings=settings), expected, f"{layout}, {case}")


@pytest.mark.parametrize(("layout", "cases"), LAYOUTS, ids=str)
def test_every_rank_computes_the_same_bits(layout: Layout, cases: list[str]) -> None:
    run_ranks(_on_ranks, layout.world_size, layout, cases, timeout=150)


def _where_weights_are(rank: int, ranks: int, store: Any, layout: Layout, case: str) -> None:
    torch.set_num_threads(1)
    with join_world(layout, rank, parity.CPU, store, 60, host_tensors=True) as world:
        model = parity.laid_out(case, world, torch.float32, Settings(offload_parameters=True))
        held = [one for one in model.held if one.is_parameter]
        assert all(isinstance(one.parameter, DTensor) for one in held), "FSDP manages every weight"
        for stage in model.stages.values():
            groups = [
                group
                for module in stage.part.modules()
                if isinstance(module, FSDPModule)
                for group in module._get_fsdp_state()._fsdp_param_groups
            ]
            assert groups
            for group in groups:
                assert isinstance(group.offload_policy, CPUOffloadPolicy)
                assert all(one.offload_to_cpu for one in group.fsdp_params)


@pytest.mark.parametrize("layout", [Layout(), Layout(dp_shard=2), Layout(dp_replicate=2, tp=2)], ids=str)
def test_every_weight_is_managed_and_rests_on_the_host(layout: Layout) -> None:
    run_ranks(_where_weights_are, layout.world_size, layout, "experts, softmax")


def _trained(rank: int, ranks: int, store: Any, layout: Layout, training: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    with join_world(layout, rank, parity.CPU, store, 60, host_tensors=True) as world:
        found = []
        for memory in ({}, {"offload_parameters": True}):
            recipe = _recipe(layout=layout, memory=memory, **training)
            model = build_model(recipe, VOCABULARY, world)
            scale = DynamicLossScale(recipe.training.loss_scale) if recipe.training.precision == "fp16" else None
            optimizer = build_optimizer(model.held, recipe.training)
            train = TrainingStep(recipe, SOURCES, model, optimizer, scale, PhaseClock(world.device))
            norms = [
                train(step, _share(_global_batch(step), world, 1), with_modules=False, stop=False).gradient_norm
                for step in (1, 2, 3)
            ]
            found.append((norms, [local(one.tensor).detach().clone() for one in train.model.held]))
        assert found[0][0] == found[1][0]
        assert all(map(torch.equal, found[0][1], found[1][1]))


@pytest.mark.parametrize(
    ("layout", "training"),
    [
        (Layout(), {"optimizer": {"name": "muon"}}),
        (Layout(dp_shard=2), {"optimizer": {"name": "adafactor"}}),
        (Layout(dp_shard=2), {"precision": "fp16"}),
        (Layout(dp_replicate=2), {"deterministic": "across_layouts"}),
        (Layout(dp_shard=2), {"deterministic": "across_layouts"}),
        (Layout(dp_shard=2), {"gradient_reduction": "bf16"}),
    ],
    ids=str,
)
def test_every_optimizer_moves_them_the_same_way(layout: Layout, training: dict[str, Any]) -> None:
    run_ranks(_trained, layout.world_size, layout, training)
