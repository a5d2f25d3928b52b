"""How many bytes a rank sends in a step, by what they are sent for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.layout.ranks import expert_sizes
from stoker.planning.activations import MicroBatch
from stoker.planning.parts import Part
from stoker.recipe import Model, Recipe
from stoker.recipe.stages import stage_to_rank

_EXCHANGES = {"ring": 3, "all_gather": 2}
"""How often keys and values, or their gradients, go round all ranks along `cp`."""
_STATISTICS = 3
"""Numbers that ranks with parts of the vocabulary tell each other of each token."""


@dataclass(frozen=True)
class PassBytes:
    """What one rank sends in one micro-batch's forward and backward pass through one stage."""

    tp: float
    cp: float
    ep: float


def pass_bytes(config: Model, pass_: MicroBatch, layers: range) -> PassBytes:
    """Of the stage that has `layers`; `config` has this rank's heads and inner widths."""
    ends = layers.stop == config.layers
    numbers = [*layers, *(config.layers + further for further in range(config.mtp_depth if ends else 0))]
    mixtures = sum(map(config.has_experts, numbers))
    return PassBytes(
        tp=_tensor_parallel(config, pass_, layers.start == 0, ends, len(numbers), mixtures),
        cp=len(numbers) * _context_parallel(config, pass_),
        ep=mixtures * (_expert_parallel(config, pass_) + _routing(config, pass_)),
    )


def stream_bytes(config: Model, pass_: MicroBatch) -> float:
    """A rank's part of the residual stream, as it goes from one pipeline stage to the next."""
    return pass_.tokens * pass_.stream * config.hidden_size * pass_.stream_width


def _share(ranks: float) -> float:
    """How much of a whole a ring over `ranks` has each of them send."""
    return (ranks - 1) / ranks


def _tensor_parallel(
    config: Model, pass_: MicroBatch, begins: bool, ends: bool, blocks: int, mixtures: int
) -> float:
    """A gather and a sum around each half of a block, at the embedding and at the loss; the same backward."""
    if pass_.tp == 1:
        return 0.0
    halves = 2 * blocks
    if pass_.whole_experts and config.moe is not None and not config.moe.shared_experts:
        halves -= mixtures
    width = pass_.stream_width
    vectors = halves * 2 * (width + pass_.compute_width) + 2 * width * begins
    vectors += (2 + 4 * config.mtp_depth) * width * ends
    statistics = _STATISTICS * 2 * 4 * (1 + config.mtp_depth) * ends
    return _share(pass_.tp) * pass_.tokens * (vectors * config.hidden_size + statistics)


def _context_parallel(config: Model, pass_: MicroBatch) -> float:
    if pass_.cp == 1:
        return 0.0
    width = pass_.compute_width
    queries = config.heads * (config.size_of_head + config.value_size)  # and the mix
    keys_and_values = config.key_value_heads * (config.size_of_head + config.value_size)
    if config.latent_attention is not None:
        keys_and_values = queries
    if pass_.cp_method == "ulysses":
        # All heads but a rank's own, of its part of the sequence; the same backward.
        return _share(pass_.cp) * pass_.tokens * 2 * (queries + keys_and_values) * width
    rounds = _EXCHANGES[pass_.cp_method] * width
    if pass_.cp_method == "ring":
        rounds += 4 - width  # gradients are added up in fp32
    return (pass_.cp - 1) * pass_.tokens * keys_and_values * rounds


def _expert_parallel(config: Model, pass_: MicroBatch) -> float:
    """Rows there and back, forward and backward; at even load."""
    if pass_.ep == 1 or config.moe is None:
        return 0.0
    rows = pass_.tokens * pass_.routed * config.moe.experts_per_token * min(1.0, config.moe.capacity_factor or 1.0)
    return _share(pass_.ep) * 4 * rows * config.hidden_size * pass_.compute_width


def _routing(config: Model, pass_: MicroBatch) -> float:
    """Counts of each expert's rows, one way: to its rank, and summed over the ranks that share a sequence."""
    if config.moe is None:
        return 0.0
    together = pass_.cp * (pass_.tp if pass_.whole_experts else 1)
    return 8 * config.moe.experts * (_share(pass_.ep) + 2 * _share(together) * pass_.batch)


def partial_bytes(recipe: Recipe, parts: Sequence[Part]) -> float:
    """Gradients of what several tensor-parallel ranks hold alike, summed once a step (in a 4-byte type).

    All of them hold what is not divided; key and value heads fewer than ranks are held by some ranks each, on the
    average as many as there are ranks for a head.
    """
    tp, heads = recipe.layout.tp, recipe.model.key_value_heads
    alike = sum(part.held_elements for part in parts if part.local == part.whole and not part.expert)
    total = 2 * _share(tp) * 4 * alike
    if recipe.model.latent_attention is None and 1 < heads < tp:
        total += 2 * _share(tp / heads) * 4 * sum(part.held_elements for part in parts if _of_key_heads(part))
    return total


def _of_key_heads(part: Part) -> bool:
    """Whether it is divided by key and value heads."""
    of = part.name.rsplit(".", 2)[-2]
    return part.local != part.whole and ".attention." in part.name and of in ("key", "value", "key_norm")


def data_parallel_bytes(recipe: Recipe, parts: Sequence[Part], accumulation: int, later: bool) -> float:
    """Gradients summed over ranks that see other tokens, and weights gathered from them.

    A ring sends each byte (ranks - 1) / ranks times to sum it and as often to gather it. Rows that do not divide
    are sent as if all ranks had as many as the first. `later` says that weight gradients are summed once a step
    whatever the stage of sharding is.
    """
    layout = recipe.layout
    width = 2 if recipe.training.precision == "pure_bf16" else 4
    sums = 2 if recipe.training.gradient_reduction == "bf16" else 4
    experts = expert_sizes(layout)
    once = later or layout.zero_stage == 1
    total = 0.0
    for part in parts:
        shards = experts.shard if part.expert else layout.shard_size
        copies = experts.replicate if part.expert else layout.replicate_size
        size = -(-part.local[0] // shards) * math.prod(part.local[1:])
        if shards > 1:
            # Weights are gathered before each block's forward and backward pass; outside of blocks once.
            gathers = 1 if layout.zero_stage < 3 else accumulation * (1 if part.block is None else 2)
            total += (shards - 1) * size * (gathers * width + (1 if once else accumulation) * sums)
        total += 2 * _share(copies) * size * sums
    owners = stage_to_rank(layout)
    if owners[0] != owners[-1] and (recipe.model.tie_embeddings or recipe.model.mtp_depth):
        total += 4 * sum(part.held_elements for part in parts if part.name == "embedding.weight")
    return total
