"""`training.deterministic: across_layouts`: the same bits however a batch is split over ranks and accumulation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stoker.data.feeding import MicroBatch
from stoker.layout import Layout
from stoker.parallel import World, join_world, single_process_world
from stoker.parallel.fixed_order import _cover
from stoker.parallel.placement import local
from stoker.parallel.whole import gathered
from stoker.recipe import Recipe
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.rank import build_model
from stoker.training.step import TrainingStep
from tests.distributed import run_ranks

pytestmark = pytest.mark.slow

VOCABULARY, LENGTH, BATCH, STEPS = 37, 16, 12, 3
SPLITS = [
    Layout(dp_replicate=2),
    Layout(dp_replicate=3),
    Layout(dp_replicate=4),
    Layout(dp_shard=2),
    Layout(dp_shard=3),
    Layout(dp_shard=4, zero_stage=2),
    Layout(dp_shard=2, zero_stage=1),
    Layout(dp_replicate=2, dp_shard=2),
    Layout(dp_replicate=2, dp_shard=3),
]


def _recipe(
    optimizer: str, deterministic: str = "across_layouts", training: dict[str, Any] | None = None, **layout: int
) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "split",
            "data": {"sources": [{"name": "text", "paths": ["x"]}]},
            "model": {"hidden_size": 20, "layers": 2, "heads": 2, "ffn_hidden_size": 27, "tie_embeddings": True},
            "training": {
                "steps": STEPS,
                "sequence_length": LENGTH,
                "global_batch_size": BATCH,
                "optimizer": {"name": optimizer, "learning_rate": 1e-2},
                "gradient_clip": 0.05,
                "deterministic": deterministic,
                **(training or {}),
            },
            "layout": layout,
        }
    )


def _samples(step: int, first: int, last: int) -> MicroBatch:
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    places = torch.arange(LENGTH).expand(BATCH, LENGTH).contiguous()
    whole = MicroBatch(
        tokens=tokens[:, :-1].contiguous(),
        targets=tokens[:, 1:].where(places > torch.arange(BATCH)[:, None] % 7, -100),
        positions=places,
        documents=torch.zeros(BATCH, LENGTH, dtype=torch.int32),
        sources=torch.zeros(BATCH, dtype=torch.int64),
        samples=torch.arange(BATCH),
    )
    return whole.rows(first, last)


def _trained(recipe: Recipe, world: World) -> dict[str, torch.Tensor]:
    """Whole weights and moments after some steps."""
    model = build_model(recipe, VOCABULARY, world)
    optimizer = build_optimizer(model.held, recipe.training)
    train = TrainingStep(recipe, ["text"], model, optimizer, None, PhaseClock(world.device))
    share = BATCH // world.layout.data_parallel_size
    first = world.data_parallel_rank * share
    for step in range(1, STEPS + 1):
        size = recipe.micro_batch_size_at(step)
        batches = [_samples(step, first + i, first + i + size) for i in range(0, share, size)]
        train(step, batches, with_modules=False, stop=False)
    found = {}
    for one in model.held:
        found[one.name] = gathered(local(one.parameter.detach()), one).clone()
        for key, value in optimizer.state[one.parameter].items():
            if value.ndim:
                found[f"{one.name}/{key}"] = gathered(local(value), one).clone()
    return found


def _rank(rank: int, ranks: int, store: Any, recipes: list[Recipe]) -> list[dict[str, torch.Tensor]]:
    torch.set_num_threads(1)
    with join_world(recipes[0].layout, rank, torch.device("cpu"), store, 60) as world:
        return [_trained(recipe, world) for recipe in recipes]


@pytest.mark.parametrize("layout", SPLITS, ids=str)
def test_every_split_of_a_batch_trains_the_same_bits(layout: Layout) -> None:
    optimizers = ["adamw", "muon", "lion"]
    alone = [_trained(_recipe(name), single_process_world(torch.device("cpu"))) for name in optimizers]
    recipes = [_recipe(name, **layout.model_dump(exclude_none=True)) for name in optimizers]
    for results in run_ranks(_rank, layout.world_size, recipes):
        for found, expected in zip(results, alone, strict=True):
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("layout", [Layout(dp_replicate=2), Layout(dp_shard=3)], ids=str)
def test_gradients_are_added_in_one_type_by_every_split(layout: Layout) -> None:
    kinds: list[dict[str, Any]] = [{"precision": "pure_bf16"}, {"gradient_reduction": "bf16"}]
    alone = [_trained(_recipe("adamw", training=kind), single_process_world(torch.device("cpu"))) for kind in kinds]
    split = layout.model_dump(exclude_none=True)
    for results in run_ranks(
        _rank, layout.world_size, [_recipe("adamw", training=kind, **split) for kind in kinds]
    ):
        for found, expected in zip(results, alone, strict=True):
            for name, tensor in expected.items():
                assert torch.equal(found[name], tensor), name


def test_without_it_another_split_rounds_differently() -> None:
    """Otherwise the test above would hold for no reason."""
    plain = _trained(_recipe("adamw", "same_layout"), single_process_world(torch.device("cpu")))
    split = run_ranks(_rank, 4, [_recipe("adamw", "same_layout", dp_replicate=4)])[0][0]
    assert any(not torch.equal(split[name], tensor) for name, tensor in plain.items())


@given(st.integers(0, 60), st.integers(1, 40))
def test_subtrees_cover_a_rank_s_micro_batches_once(first: int, count: int) -> None:
    leaves = [
        leaf for level, place in _cover(first, first + count) for leaf in range(place << level, place + 1 << level)
    ]
    assert leaves == list(range(first, first + count))


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"layout": {"tp": 2}}, "holds for dp_replicate and dp_shard"), ({"optimizer": "adafactor"}, "adafactor")],
)
def test_what_it_does_not_hold_for_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        _recipe(changes.get("optimizer", "adamw"), **changes.get("layout", {}))
