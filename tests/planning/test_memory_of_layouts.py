"""The account of memory of every rank of a layout, against what real ranks hold and allocate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.model import Decoder
from stoker.parallel import Inputs, Settings, apply, join_world
from stoker.planning.memory import memory_of_rank
from stoker.planning.parts import parts_of_rank, ranks_that_differ
from stoker.recipe import Recipe
from stoker.training.precision import autocast, parameter_dtype, reduction_dtype
from tests.distributed import run_ranks
from tests.planning.live_bytes import peak_bytes
from tests.planning.test_memory import CPU, held_on_rank, recipe_of

pytestmark = pytest.mark.slow

SMALL = {"hidden_size": 24, "layers": 4, "heads": 6, "kv_heads": 2, "ffn_hidden_size": 37}
DIVIDED_MODELS: dict[str, dict[str, Any]] = {
    "plain": {**SMALL, "attention_bias": True, "ffn_bias": True, "norm": "layer", "position": "learned"},
    "tied": {**SMALL, "tie_embeddings": True, "qk_norm": "full"},
    "experts": {
        **SMALL,
        "moe": {"experts": 4, "experts_per_token": 2, "shared_experts": 1, "first_dense_layers": 1},
    },
    "everything": {
        **SMALL,
        "kv_heads": None,
        "mtp_depth": 1,
        "moe": {"experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 11},
        "latent_attention": {
            "kv_rank": 8,
            "query_rank": 10,
            "nope_head_size": 4,
            "rope_head_size": 2,
            "value_head_size": 5,
        },
    },
}
DIVIDED: list[tuple[str, dict[str, Any], str, str]] = [
    ("plain", {"tp": 2}, "adamw", "fp32"),
    ("plain", {"tp": 4, "dp_shard": 2}, "adafactor", "bf16"),
    ("tied", {"tp": 3, "dp_replicate": 2}, "muon", "fp32"),
    ("tied", {"pp": 2, "dp_shard": 2}, "adamw", "pure_bf16"),
    ("tied", {"pp": 2, "tp": 2, "pipeline_schedule": "dualpipe_v"}, "lion", "fp32"),
    ("plain", {"pp": 2, "dp_shard": 2, "pipeline_schedule": "zbv"}, "adamw", "fp32"),
    ("plain", {"cp": 2, "dp_shard": 2, "zero_stage": 1}, "adamw", "fp32"),
    ("plain", {"cp": 3, "zero_stage": 2}, "adamw", "fp32"),
    ("experts", {"dp_replicate": 2, "dp_shard": 2, "ep": 2}, "adamw", "fp32"),
    ("experts", {"dp_shard": 2, "ep": 2, "tp": 2}, "adafactor", "fp32"),
    ("experts", {"dp_shard": 2, "tp": 2, "ep": 4, "expert_tp": False}, "adamw", "fp32"),
    ("experts", {"dp_shard": 4, "ep": 2, "zero_stage": 2}, "muon", "fp32"),
    ("experts", {"dp_shard": 2, "tp": 3, "expert_tp": False}, "adamw", "fp32"),
    ("everything", {"pp": 2, "tp": 2}, "adafactor", "fp32"),
    ("everything", {"pp": 2, "dp_shard": 2, "ep": 2}, "muon", "bf16"),
]


@pytest.mark.parametrize(("model", "layout", "optimizer", "precision"), DIVIDED, ids=str)
def test_every_rank_holds_what_is_planned_of_it(
    model: str, layout: dict[str, Any], optimizer: str, precision: str
) -> None:
    recipe = recipe_of(
        DIVIDED_MODELS[model],
        layout,
        optimizer={"name": optimizer},
        precision=precision,
        global_batch_size=12,
        micro_batch_size=1,
    )
    held = run_ranks(held_on_rank, recipe.layout.world_size, recipe)
    planned = [_planned_of(recipe, rank) for rank in range(recipe.layout.world_size)]
    assert planned == held
    most = [_planned_of(recipe, rank) for rank in ranks_that_differ(recipe)]
    for category in held[0]:
        assert max(rank[category] for rank in most) == max(rank[category] for rank in held)


def _planned_of(recipe: Recipe, rank: int) -> dict[str, int]:
    planned = memory_of_rank(recipe, 301, 2, 1, "cpu", rank)
    found = {name: getattr(planned, name) for name in ("parameters", "gradients", "optimizer")}
    width = 2 if recipe.training.precision == "pure_bf16" else 4
    parts = parts_of_rank(recipe, 301, rank)
    return {**found, "gradients": width * sum(part.held_elements for part in parts)}


WIDE = {"hidden_size": 128, "layers": 4, "heads": 8, "kv_heads": 4, "ffn_hidden_size": 384}
ROUTED = {"moe": {"experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 128, "shared_experts": 1}}
VOCABULARY, LENGTH, SEQUENCES = 1024, 256, 4


@pytest.mark.parametrize(
    ("model", "layout", "precision", "micro_batches"),
    [
        (WIDE, {"dp_shard": 2, "zero_stage": 1}, "fp32", 2),
        (WIDE, {"tp": 2}, "bf16", 1),
        (WIDE, {"cp": 2}, "fp32", 1),
        (WIDE, {"pp": 2}, "bf16", 4),
        (WIDE, {"pp": 2, "pipeline_schedule": "zbv"}, "fp32", 4),
        ({**WIDE, **ROUTED}, {"dp_replicate": 2, "ep": 2}, "fp32", 1),
    ],
    ids=str,
)
def test_every_rank_allocates_about_what_is_planned(
    model: dict[str, Any], layout: dict[str, Any], precision: str, micro_batches: int
) -> None:
    recipe = recipe_of(
        model,
        layout,
        precision=precision,
        sequence_length=LENGTH,
        global_batch_size=2 * SEQUENCES * micro_batches,
        micro_batch_size=SEQUENCES,
    )
    ranks = recipe.layout.world_size
    allocated = run_ranks(_allocated_on_rank, ranks, recipe, micro_batches, timeout=150)
    planned = [memory_of_rank(recipe, VOCABULARY, SEQUENCES, micro_batches, "cpu", rank) for rank in range(ranks)]
    moving = [memory.total - memory.parameters - memory.optimizer for memory in planned]
    assert moving == pytest.approx(allocated, rel=0.15)


def _allocated_on_rank(rank: int, ranks: int, store: Any, recipe: Recipe, micro_batches: int) -> int:
    """Most bytes that the passes of a step allocate, gradients counted."""
    precision = recipe.training.precision
    with join_world(recipe.layout, rank, CPU, store, 120) as world:
        with torch.device("meta"):
            model = Decoder(recipe.model, VOCABULARY, LENGTH)
        model.to(parameter_dtype(precision))
        parallel = apply(model, world, Settings(reduce=reduction_dtype(recipe.training)))
        parallel.train()
        tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH))
        places = torch.arange(LENGTH).expand_as(tokens).contiguous()
        batch = Inputs(tokens, tokens, places, None, torch.arange(SEQUENCES))

        def step() -> None:
            parallel.forward_backward(
                [batch] * micro_batches,
                step=1,
                seed=0,
                loss_scale=1e-3,
                autocast=lambda: autocast(precision, CPU),
            )

        step()
        parallel.gradients.clear()
        return peak_bytes(step)
