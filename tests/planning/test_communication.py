"""The bytes a plan counts are those that ranks send."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.bench.traffic import Traffic
from stoker.model import Decoder
from stoker.parallel import Inputs, apply, join_world
from stoker.planning.communication import data_parallel_bytes, partial_bytes, pass_bytes
from stoker.planning.memory import pass_of
from stoker.planning.parts import local_model, own_stages, parts_of_rank
from stoker.recipe import Recipe
from tests.distributed import run_ranks
from tests.planning.test_memory import CPU, recipe_of

VOCABULARY, LENGTH, SEQUENCES, MICRO_BATCHES = 256, 64, 2, 2
MODEL = {"hidden_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_hidden_size": 96}
ROUTED = {"moe": {"experts": 4, "experts_per_token": 4, "expert_ffn_hidden_size": 32}}
"""Every token to every expert, so that load is even."""


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (MODEL, {"dp_replicate": 2}),
        (MODEL, {"dp_shard": 2}),
        (MODEL, {"dp_shard": 2, "zero_stage": 1}),
        (MODEL, {"tp": 2}),
        (MODEL, {"cp": 2}),
        (MODEL, {"cp": 2, "cp_method": "ulysses"}),
        ({**MODEL, **ROUTED}, {"dp_replicate": 2, "ep": 2}),
        ({**MODEL, **ROUTED}, {"tp": 2, "ep": 2, "expert_tp": False}),
    ],
    ids=str,
)
def test_ranks_send_what_is_planned(model: dict[str, Any], layout: dict[str, Any]) -> None:
    recipe = recipe_of(model, layout, sequence_length=LENGTH, global_batch_size=8, micro_batch_size=SEQUENCES)
    ranks = recipe.layout.world_size
    sent = run_ranks(_sent_by_rank, ranks, recipe, timeout=150)
    planned = [_planned_of(recipe, rank) for rank in range(ranks)]
    assert sum(planned) == pytest.approx(sum(sent), rel=0.01)


def _planned_of(recipe: Recipe, rank: int) -> float:
    layout, at = recipe.layout, recipe.layout.coordinate(rank)
    parts = parts_of_rank(recipe, VOCABULARY, rank)
    total = data_parallel_bytes(recipe, parts, MICRO_BATCHES, later=False) + partial_bytes(recipe, parts)
    pass_, config = pass_of(recipe, VOCABULARY, SEQUENCES, "cpu"), local_model(recipe.model, layout, at.tp)
    for layers in own_stages(recipe.model, VOCABULARY, LENGTH, layout, at.pp).values():
        one = pass_bytes(config, pass_, layers)
        total += MICRO_BATCHES * (one.tp + one.cp + one.ep)
    return total


def _sent_by_rank(rank: int, ranks: int, store: Any, recipe: Recipe) -> float:
    with join_world(recipe.layout, rank, CPU, store, 120) as world:
        with torch.device("meta"):
            model = Decoder(recipe.model, VOCABULARY, LENGTH)
        parallel = apply(model, world)
        tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH))
        places = torch.arange(LENGTH).expand_as(tokens).contiguous()
        batch = Inputs(tokens, tokens, places, None, torch.arange(SEQUENCES))
        with Traffic() as traffic:
            parallel.forward_backward([batch] * MICRO_BATCHES, step=1, seed=0, loss_scale=1e-3)
        return float(sum(call.sent for call in traffic.calls))
