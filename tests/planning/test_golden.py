"""The planner's formulas, to the last operation and the last byte, against steps of clusters of 64 to 2,048 ranks.

A step goes through the same `apply` and `forward_backward` as in training; see `fake_cluster`. What a formula
leaves out on purpose has a function with a name here. Bytes are whole numbers even where formulas divide: all
numbers of ranks that something is divided over are powers of two, so that floats are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from stoker.model import flops_per_token
from stoker.pipeline_schedule import Kind, build_schedule
from stoker.planning.activations import MicroBatch, numbers_of
from stoker.planning.cluster.flops import model_flops
from stoker.planning.cluster.recipes import workload_of
from stoker.planning.communication import data_parallel_bytes, partial_bytes, pass_bytes, stream_bytes
from stoker.planning.memory import pass_of
from stoker.planning.operations import (
    attention_flops,
    block_matmuls,
    expanded_again,
    further_token_matmuls,
    loss_matmuls,
)
from stoker.planning.parts import Part, local_model, own_stages, parts_of_rank
from stoker.planning.pipeline import puts_weight_gradients_off
from stoker.recipe import Model, Recipe
from stoker.recipe.stages import stage_to_rank
from tests.planning.fake_cluster import Counted, counted_step
from tests.planning.test_memory import recipe_of

pytestmark = pytest.mark.slow

_LLAMA = {"kv_heads": 8, "tie_embeddings": False}
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "llama-3-8b": (
        {**_LLAMA, "hidden_size": 4096, "layers": 32, "heads": 32, "ffn_hidden_size": 14336},
        128256,
    ),
    "llama-3-70b": (
        {**_LLAMA, "hidden_size": 8192, "layers": 80, "heads": 64, "ffn_hidden_size": 28672},
        128256,
    ),
    "llama-3-405b": (
        {**_LLAMA, "hidden_size": 16384, "layers": 126, "heads": 128, "ffn_hidden_size": 53248},
        128256,
    ),
    "mixtral-8x7b": (
        {
            **{**_LLAMA, "hidden_size": 4096, "layers": 32, "heads": 32, "ffn_hidden_size": 14336},
            "moe": {"experts": 8, "experts_per_token": 2, "normalise_weights": True},
        },
        32000,
    ),
    "deepseek-v3": (
        {
            **{"hidden_size": 7168, "layers": 61, "heads": 128, "ffn_hidden_size": 18432, "mtp_depth": 1},
            "tie_embeddings": False,
            "latent_attention": {
                **{"kv_rank": 512, "query_rank": 1536, "nope_head_size": 128, "rope_head_size": 64},
                "value_head_size": 128,
            },
            "moe": {
                **{"experts": 256, "experts_per_token": 8, "expert_ffn_hidden_size": 2048, "shared_experts": 1},
                **{"first_dense_layers": 3, "gate": "sigmoid", "normalise_weights": True, "weight_scale": 2.5},
                **{"groups": 8, "groups_per_token": 4, "bias_update_rate": 0.001},
            },
        },
        129280,
    ),
}
"""Shapes as published, and sizes of vocabulary."""


@dataclass(frozen=True)
class Case:
    """A rank's step. Fewer layers, tokens and micro-batches than in a real run change no formula."""

    name: str
    model: str
    layout: dict[str, Any]
    rank: int
    micro_batches: int = 2
    length: int = 512
    layers: int | None = None
    precision: str = "fp32"

    @property
    def recipe(self) -> Recipe:
        """A recipe of such steps."""
        model = dict(MODELS[self.model][0])
        model["layers"] = self.layers or model["layers"]
        ranks = self.layout.get("dp_replicate", 1) * self.layout.get("dp_shard", 1)
        return recipe_of(
            model,
            self.layout,
            **{"sequence_length": self.length, "precision": self.precision, "document_mask": False},
            **{"micro_batch_size": 1, "global_batch_size": self.micro_batches * ranks},
        )

    @property
    def vocabulary_size(self) -> int:
        """Of its model."""
        return MODELS[self.model][1]


_8B, _70B, _405B, _MIXTRAL, _DEEPSEEK = MODELS
CASES = [
    Case("64 copies", _8B, {"dp_replicate": 64}, 5, layers=2),
    Case("64 shards", _8B, {"dp_shard": 64}, 5, layers=2),
    Case("ZeRO 2", _8B, {"dp_replicate": 8, "dp_shard": 8, "zero_stage": 2}, 33, layers=2, precision="bf16"),
    Case("ZeRO 1", _8B, {"dp_shard": 128, "zero_stage": 1}, 77, layers=2, precision="pure_bf16"),
    Case("rows that do not divide", _8B, {"dp_shard": 256, "tp": 8}, 2001, layers=2, length=1024),
    Case("gathered keys", _8B, {"cp": 8, "cp_method": "all_gather", "dp_shard": 8}, 20, 1, 2048, layers=2),
    Case("1F1B", _8B, {"dp_replicate": 4, "tp": 8, "pp": 4}, 70, 3, 1024, layers=8),
    Case(
        "HSDP in a pipeline",
        _70B,
        {"dp_replicate": 2, "dp_shard": 4, "tp": 8, "pp": 16, "zero_stage": 1},
        517,
        precision="bf16",
    ),
    Case(
        "ring and interleaved",
        _70B,
        {"cp": 4, "tp": 4, "pp": 4, "dp_shard": 8, "pipeline_schedule": "interleaved_1f1b"},
        **{"rank": 300, "length": 1024, "layers": 16, "precision": "bf16"},
    ),
    Case(
        "heads exchanged, ZBV",
        _70B,
        {"cp": 8, "cp_method": "ulysses", "pp": 8, "pipeline_schedule": "zbv"},
        **{"rank": 20, "length": 1024, "layers": 16},
    ),
    Case(
        "ZeRO 2 and GPipe",
        _405B,
        {"tp": 8, "pp": 16, "dp_shard": 16, "zero_stage": 2, "pipeline_schedule": "gpipe"},
        **{"rank": 1025, "layers": 64},
    ),
    Case(
        "fewer key heads than ranks",
        _405B,
        {"tp": 16, "pp": 16, "dp_shard": 2, "pipeline_schedule": "interleaved_zero_bubble"},
        **{"rank": 100, "layers": 64},
    ),
    Case("experts cut", _MIXTRAL, {"tp": 8, "dp_replicate": 8, "pp": 4}, 50, layers=8),
    Case(
        "experts whole", _MIXTRAL, {"ep": 8, "tp": 4, "dp_replicate": 8, "pp": 4, "expert_tp": False}, 50, layers=8
    ),
    Case("experts over ranks", _MIXTRAL, {"ep": 8, "dp_shard": 64, "pp": 4}, 70, layers=8, precision="bf16"),
    Case(
        "DualPipeV",
        _DEEPSEEK,
        {"ep": 64, "dp_shard": 64, "pp": 16, "zero_stage": 1, "pipeline_schedule": "dualpipe_v"},
        **{"rank": 3, "micro_batches": 1, "precision": "bf16"},
    ),
]
LONGER = [
    Case("70B whole", _70B, {"cp": 4, "tp": 4, "pp": 8, "dp_shard": 4}, 511, 8, 4096),
    Case("405B whole", _405B, {"cp": 16, "tp": 8, "pp": 16}, 120, 4, 8192),
    Case("shared embedding", _DEEPSEEK, {"ep": 64, "dp_replicate": 64, "tp": 4, "pp": 8}, 2047, 2, 1024),
]


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(one, marks=[pytest.mark.thorough, pytest.mark.timeout(600)]) for one in LONGER)],
    ids=lambda one: f"{one.model}: {one.name}",
)
def test_a_step_is_what_is_planned_exactly(case: Case) -> None:
    recipe, vocabulary_size, micro_batches = case.recipe, case.vocabulary_size, case.micro_batches
    assert 64 <= recipe.layout.world_size <= 2048
    assert counted_step(recipe, vocabulary_size, case.rank, micro_batches) == planned_step(case)


def planned_step(case: Case) -> Counted:
    """By the planner's formulas."""
    recipe, vocabulary_size, micro_batches = case.recipe, case.vocabulary_size, case.micro_batches
    layout, at = recipe.layout, recipe.layout.coordinate(case.rank)
    pass_, config = pass_of(recipe, vocabulary_size, 1, "cpu"), local_model(recipe.model, layout, at.tp)
    parts = parts_of_rank(recipe, vocabulary_size, case.rank)
    later = layout.pp > 1 and puts_weight_gradients_off(layout)
    sent = data_parallel_bytes(recipe, parts, micro_batches, later) + partial_bytes(recipe, parts)
    sent += _gathered_in_vain(case) + _between_gradients(recipe, parts)
    products, attention, messages = Fraction(), Fraction(), 0.0
    owners = stage_to_rank(layout)
    for stage, layers in own_stages(recipe.model, vocabulary_size, case.length, layout, at.pp).items():
        one = pass_bytes(config, pass_, layers)
        sent += micro_batches * (one.tp + one.cp + one.ep)
        neighbours = [owners[other] for other in (stage - 1, stage + 1) if 0 <= other < len(owners)]
        messages += micro_batches * stream_bytes(config, pass_) * sum(one != at.pp for one in neighbours)
        products += micro_batches * _products(config, pass_, layers)
        flops = Fraction(attention_flops(config, pass_)) * _pairs_given_to_kernels(pass_, at.cp)
        attention += micro_batches * len(numbers_of(config, layers)) * flops
    assert products.denominator == attention.denominator == 1
    return Counted(int(products), int(attention), sent, messages)


def _products(config: Model, pass_: MicroBatch, layers: range) -> Fraction:
    """Floating-point operations of a stage's matrix products, of one micro-batch."""
    numbers = numbers_of(config, layers)
    matmuls = [matmul for number in numbers for matmul in block_matmuls(config, pass_.tokens, number, pass_)]
    matmuls += len(numbers) * expanded_again(config, pass_.tokens)
    total = Fraction(sum(matmul.flops for matmul in matmuls))
    if layers.stop == config.layers:
        chunks = Fraction(pass_.tokens, min(pass_.loss_chunk, pass_.tokens))
        total += (1 + config.mtp_depth) * chunks * sum(matmul.flops for matmul in loss_matmuls(config, pass_))
        total += config.mtp_depth * sum(matmul.flops for matmul in further_token_matmuls(config, pass_))
    return total


def _pairs_given_to_kernels(pass_: MicroBatch, cp: int) -> Fraction:
    """Of all pairs of a rank's queries with a sequence's keys, those that kernels see when a sequence is divided.

    Formulas count causal attention in full, and so does a kernel that is told that it is causal. Of sequences in
    2·cp chunks a rank has the queries of two, and gives kernels the chunks before each and the chunk itself. The
    last rank's chunks are neighbours, which are one to it.
    """
    if pass_.cp == 1 or pass_.cp_method == "ulysses":
        return Fraction(1)
    chunks = 2 * pass_.cp + 1 + (cp == pass_.cp - 1)
    return Fraction(chunks, 4 * pass_.cp)


def _gathered_in_vain(case: Case) -> float:
    """Weights that FSDP gathers ahead of time in a pipeline, and does not need.

    In backward it gathers what went before in the order of forward passes. When several of them went before, that
    is the last block again. A stage with weights outside of blocks has those there, which are whole already.
    """
    recipe, layout, total = case.recipe, case.recipe.layout, 0
    at = layout.coordinate(case.rank)
    if layout.pp == 1 or layout.shard_size == 1 or layout.zero_stage < 3:
        return 0.0
    schedule = build_schedule(layout.pipeline_schedule, layout.pp, case.micro_batches, layout.stages // layout.pp)
    parts = parts_of_rank(recipe, case.vocabulary_size, case.rank)
    stages = own_stages(recipe.model, case.vocabulary_size, case.length, layout, at.pp)
    for stage, layers in stages.items():
        if layers.start == 0 or layers.stop == recipe.model.layers:
            continue
        forwards = times = 0
        for kind in (kind for kind, one, _ in schedule.actions[at.pp] if one == stage):
            if kind is Kind.FORWARD:
                forwards += 1
            elif kind is not Kind.BACKWARD_WEIGHT:
                times += forwards > 1
                forwards = 0
        for part in parts:
            if part.block == f"blocks.{layers[-1]}" and not part.expert:
                rows = -(-part.local[0] // layout.shard_size)
                total += times * (layout.shard_size - 1) * rows * math.prod(part.local[1:]) * 4
    return float(total)


def _between_gradients(recipe: Recipe, parts: Sequence[Part]) -> float:
    """Zeros between gradients that tensor-parallel ranks sum, each of which begins at a multiple of 256 bytes."""
    tp = recipe.layout.tp
    sizes = [4 * part.held_elements for part in parts if part.local == part.whole and not part.expert]
    return 2 * (tp - 1) / tp * sum(-size % 256 for size in sizes)


@pytest.mark.parametrize("name", MODELS)
def test_the_cluster_model_counts_a_models_operations_as_the_model_does(name: str) -> None:
    config, vocabulary_size = MODELS[name]
    recipe = recipe_of(config, sequence_length=4096, global_batch_size=8, micro_batch_size=1)
    workload = workload_of(recipe, vocabulary_size)
    counted, tokens = model_flops(workload), workload.tokens
    each = flops_per_token(recipe.model, vocabulary_size, 4096)
    assert counted.full == each.full * tokens
    assert counted.causal + _half_of_the_diagonal(recipe.model) * tokens == each.causal * tokens


def _half_of_the_diagonal(config: Model) -> int:
    """Operations of a token's attention to itself, half of which half of a square leaves out."""
    pair = 6 * config.heads * (config.size_of_head + config.value_size) * (config.layers + config.mtp_depth)
    return pair // 2
