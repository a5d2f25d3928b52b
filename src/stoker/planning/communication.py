"""How many bytes a rank sends in a step, by what they are sent for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.layout import Layout
from stoker.layout.ranks import expert_sizes
from stoker.planning.activations import MicroBatch
from stoker.planning.parts import Part
from stoker.recipe import Model, Recipe

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
        ep=mixtures * _expert_parallel(config, pass_),
    )


def stream_bytes(config: Model, pass_: MicroBatch) -> float:
    """A rank's part of the residual stream, as it goes from one pipeline stage to the next."""
    return pass_.tokens * pass_.stream * config.hidden_size * pass_.stream_width


def _share(ranks: int) -> float:
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


def partial_bytes(layout: Layout, parts: Sequence[Part]) -> float:
    """Gradients of what all tensor-parallel ranks hold alike, summed once a step (of a 4-byte type)."""
    alike = sum(part.held_elements for part in parts if part.local == part.whole and not part.expert)
    return 2 * _share(layout.tp) * 4 * alike


def data_parallel_bytes(recipe: Recipe, parts: Sequence[Part], accumulation: int, later: bool) -> float:
    """Gradients summed over ranks that see other tokens, and weights gathered from them.

    A ring sends each byte (ranks - 1) / ranks times to sum it and as often to gather it. `later` says that
    weight gradients are summed once a step whatever the stage of sharding is.
    """
    layout = recipe.layout
    width = 2 if recipe.training.precision == "pure_bf16" else 4
    sums = 2 if recipe.training.gradient_reduction == "bf16" else 4
    experts = expert_sizes(layout)
    once = later or layout.zero_stage == 1
    total = 0.0
    for part in parts:
        size = part.local_elements
        shards = experts.shard if part.expert else layout.shard_size
        copies = experts.replicate if part.expert else layout.replicate_size
        if shards > 1:
            # Weights are gathered before each block's forward and backward pass; outside of blocks once.
            gathers = 1 if layout.zero_stage < 3 else accumulation * (1 if part.block is None else 2)
            total += _share(shards) * size * (gathers * width + (1 if once else accumulation) * sums)
        total += 2 * _share(copies) * part.held_elements * sums
    if layout.pp > 1 and (recipe.model.tie_embeddings or recipe.model.mtp_depth):
        total += width * sum(part.held_elements for part in parts if part.name == "embedding.weight")
    return total
