"""Time of one step on one rank: every operation at the rate that was measured for its kind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.planning.activations import MicroBatch, numbers_of
from stoker.planning.communication import data_parallel_bytes, partial_bytes, pass_bytes, stream_bytes
from stoker.planning.machine import Machine
from stoker.planning.memory import kept_by_forward, of_block_matrix, recomputation_of_rank
from stoker.planning.operations import (
    attention_flops,
    block_bytes,
    block_matmuls,
    expanded_again,
    further_token_matmuls,
    loss_bytes,
    loss_matmuls,
    outside_bytes,
    repeated,
)
from stoker.planning.parts import Part, local_model, tensor_parallel_kinds
from stoker.planning.pipeline import makespan, puts_weight_gradients_off
from stoker.planning.recompute import nearest_choice
from stoker.recipe import Adafactor, Lion, Model, Muon, Recipe
from stoker.recipe.memory import Recomputation
from stoker.recipe.stages import stage_layers, stage_to_rank

_HOST_LINK = 25e9
"""Bytes a second between accelerator and host where nothing is published: PCIe 4.0 with 16 lanes, as reached."""
_HOST_MEMORY = 200e9
"""Bytes a second of the memory of a machine with accelerators, shared by its ranks: 8 channels of DDR4."""
_LOOPBACK_COPIES = 5
"""How often a byte is copied on its way between two processes of one machine (gloo over the loopback)."""


@dataclass(frozen=True)
class ComputeSeconds:
    """Forward and backward of one micro-batch, by kind of operation."""

    matmul: float
    attention: float
    pointwise: float
    loss: float
    """Projection to the vocabulary and cross-entropy, their matrix products included."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.matmul + self.attention + self.pointwise + self.loss


def compute_seconds(
    config: Model, pass_: MicroBatch, machine: Machine, ranks_here: int, layers: range | None = None
) -> ComputeSeconds:
    """Forward and backward of one micro-batch while `ranks_here` ranks share the machine's memory.

    Through the stage that has `layers` (default: all there is); `config` has this rank's heads and inner widths.
    """
    layers = range(config.layers) if layers is None else layers
    begins, ends = layers.start == 0, layers.stop == config.layers
    rates, crowding = machine.rates, _crowding(machine, ranks_here)
    of_loss = sum(rates.matmul_seconds(matmul) for matmul in loss_matmuls(config, pass_))
    of_loss += loss_bytes(config, pass_) / rates.loss_bytes_per_second * crowding
    # The last chunk may be short; what is left of it costs its share.
    of_loss *= pass_.tokens / min(pass_.loss_chunk, pass_.tokens)
    of_loss *= 1 + config.mtp_depth
    of_loss += _weight_gradient_bytes(config, pass_) / rates.update_bytes_per_second * crowding
    numbers = [*layers, *(config.layers + further for further in range(config.mtp_depth if ends else 0))]
    moved = len(numbers) * block_bytes(config, pass_) + outside_bytes(config, pass_) * (begins + ends) / 2
    kinds = Counter(map(config.has_experts, numbers))
    of_blocks = sum(
        count
        * sum(
            rates.matmul_seconds(m)
            for m in block_matmuls(config, pass_.tokens, numbers[-1] if experts else 0, pass_)
        )
        for experts, count in kinds.items()
    )
    of_blocks += len(numbers) * sum(map(rates.matmul_seconds, expanded_again(config, pass_.tokens)))
    further = config.mtp_depth * sum(map(rates.matmul_seconds, further_token_matmuls(config, pass_)))
    return ComputeSeconds(
        matmul=of_blocks + (further if ends else 0.0),
        attention=len(numbers) * attention_flops(config, pass_) / rates.attention_flops_per_second,
        pointwise=moved / rates.pointwise_bytes_per_second * crowding,
        loss=of_loss if ends else 0.0,
    )


def recompute_seconds(
    config: Model, pass_: MicroBatch, machine: Machine, ranks_here: int, layers: range, recomputation: Recomputation
) -> float:
    """What one micro-batch's backward pass computes again in the stage that has `layers`."""
    rates, total = machine.rates, 0.0
    for layer in numbers_of(config, layers):
        choice = recomputation.layers.get(layer)
        if layer in recomputation.shares:
            choice = nearest_choice(config, pass_, layer, recomputation.shares[layer])
        if choice is None:
            continue
        again = repeated(config, pass_, layer, choice)
        total += sum(map(rates.matmul_seconds, again.matmuls))
        total += again.attention_flops / rates.attention_flops_per_second
        total += again.moved / rates.pointwise_bytes_per_second * _crowding(machine, ranks_here)
        total += again.sent / _link_bytes_per_second(machine, ranks_here)
    return total


@dataclass(frozen=True)
class PassSeconds:
    """All forward and backward passes of one step, on the rank that computes longest."""

    compute: float
    recompute: float
    """What backward does again of the forward passes."""
    tp: float
    cp: float
    ep: float
    pp_bubble: float
    """What that rank waits for others of its pipeline, and for what they send."""


def pass_seconds(
    recipe: Recipe, vocabulary_size: int, pass_: MicroBatch, accumulation: int, machine: Machine
) -> PassSeconds:
    """Of the slowest tensor-parallel ranks, whose sums the others wait for."""
    layout, ranks_here = recipe.layout, machine.ranks_here(recipe.layout.world_size)
    crowded = max(1.0, machine.threads * ranks_here / machine.cores) if machine.device == "cpu" else 1.0
    link = _link_bytes_per_second(machine, layout.world_size)
    layers = stage_layers(recipe.model, vocabulary_size, recipe.training.sequence_length, layout)
    models = [local_model(recipe.model, layout, tp) for tp in tensor_parallel_kinds(recipe)]
    computes, again, sent = [], [], []
    for own, place in zip(layers, stage_to_rank(layout), strict=True):
        seconds = (compute_seconds(model, pass_, machine, ranks_here, own).total for model in models)
        computes.append(crowded * max(seconds))
        sent.append(pass_bytes(models[0], pass_, own))
        rank = place * layout.world_size // layout.pp
        recomputed = recomputation_of_rank(recipe, vocabulary_size, machine.device, rank)
        again.append(
            crowded * max(recompute_seconds(one, pass_, machine, ranks_here, own, recomputed) for one in models)
        )
    stages = [compute + (one.tp + one.cp + one.ep) / link for compute, one in zip(computes, sent, strict=True)]
    transfer = stream_bytes(recipe.model, pass_) / link
    # Backward computes twice what forward does, and what it does again.
    costs = [(one / 3, 2 * one / 3 + more) for one, more in zip(stages, again, strict=True)]
    played = makespan(layout, accumulation, costs, transfer)
    owned = [stage for stage, place in enumerate(stage_to_rank(layout)) if place == played.busiest]
    return PassSeconds(
        compute=accumulation * sum(computes[stage] for stage in owned),
        recompute=accumulation * sum(again[stage] for stage in owned),
        tp=accumulation * sum(sent[stage].tp for stage in owned) / link,
        cp=accumulation * sum(sent[stage].cp for stage in owned) / link,
        ep=accumulation * sum(sent[stage].ep for stage in owned) / link,
        pp_bubble=max(0.0, played.total - played.busy),
    )


def update_seconds(recipe: Recipe, parts: Sequence[Part], machine: Machine) -> float:
    """Gradient norm, clipping and the optimizer's update of `parts`."""
    width = 2 if recipe.training.precision == "pure_bf16" else 4
    held = sum(part.held_elements for part in parts)
    moved, flops = (3 if recipe.training.gradient_clip is not None else 1) * held * width, 0.0
    for part in parts:
        elements = part.held_elements
        match recipe.training.optimizer:
            case Lion():
                moved += 13 * elements * width
            case Adafactor():
                moved += 30 * elements * 4
            case Muon(newton_schulz_steps=steps) if of_block_matrix(part):
                # Every rank that shares a matrix orthogonalises all of it; of stacked ones, those at hand.
                short, long = sorted(part.whole[-2:])
                flops += math.prod(part.held[:-2]) * steps * (4 * short * short * long + 2 * short**3)
                moved += 12 * elements * width
            case _:
                moved += 7 * elements * width
    if recipe.training.precision == "pure_bf16":
        moved += 4 * held * width  # weights from before the update, to count those that did not move
    ranks_here, memory = machine.ranks_here(recipe.layout.world_size), recipe.training.memory
    seconds = moved / machine.rates.update_bytes_per_second * _crowding(machine, ranks_here)
    if machine.device != "cpu" and (memory.offload_optimizer or memory.offload_parameters):
        seconds = moved * min(machine.devices, recipe.layout.world_size) / _HOST_MEMORY
    return seconds + flops / machine.rates.matmul_flops_per_second


def communication_seconds(recipe: Recipe, parts: Sequence[Part], machine: Machine, accumulation: int) -> float:
    """Summing gradients over ranks that see other tokens (and gathering weights, when sharded), as if nothing
    else went on meanwhile."""
    layout = recipe.layout
    later = layout.pp > 1 and puts_weight_gradients_off(layout)
    return data_parallel_bytes(recipe, parts, accumulation, later) / _link_bytes_per_second(
        machine, layout.world_size
    )


def partial_seconds(recipe: Recipe, parts: Sequence[Part], machine: Machine) -> float:
    """Summing, once a step, gradients of what tensor-parallel ranks hold alike."""
    return partial_bytes(recipe, parts) / _link_bytes_per_second(machine, recipe.layout.world_size)


def exposed_seconds(communication: float, compute: float, machine: Machine, ranks: int) -> float:
    """The part of `communication` that the step waits for.

    Accelerators send while backward computes, which is two thirds of the computation; on a processor
    whose cores all compute, sending takes their time away.
    """
    if machine.device == "cuda":
        return max(0.05 * communication, communication - 2 / 3 * compute)
    idle_cores = machine.cores - machine.threads * ranks
    return communication if idle_cores < ranks else max(0.2 * communication, communication - 2 / 3 * compute)


def offload_seconds(
    recipe: Recipe,
    vocabulary_size: int,
    rank: int,
    parts: Sequence[Part],
    machine: Machine,
    micro_batches: tuple[int, int],
    compute: float,
) -> float:
    """What a step of `rank` waits for copies to host memory and back, beside `compute` seconds that may hide them.

    `micro_batches` are their size and how many there are.
    """
    size, accumulation = micro_batches
    memory, width = recipe.training.memory, 2 if recipe.training.precision == "pure_bf16" else 4
    on_device, held = machine.device != "cpu", sum(part.held_elements for part in parts) * width
    passes = 0
    if memory.offload_activations:
        kept = sum(kept_by_forward(recipe, vocabulary_size, size, machine.device, rank).values())
        passes += kept * (2 if on_device else 1)  # on a processor what is copied is there
    waited = 0
    if memory.offload_parameters:  # weights for forward and backward, and gradients
        alone = recipe.layout.shard_size == 1  # then FSDP fetches weights when they are needed, not before
        passes += held if alone and on_device else 3 * held
        waited = 2 * held if alone else 0
    if not on_device:
        rate = machine.rates.copy_bytes_per_second / _crowding(
            machine, machine.ranks_here(recipe.layout.world_size)
        )
        return passes * accumulation / rate
    published = machine.accelerator.host_gbps if machine.accelerator else None
    link = published * 1e9 if published else _HOST_LINK
    update = 2 * held / link if memory.offload_optimizer else 0.0  # gradients go, weights come
    return max(0.0, passes * accumulation / link - compute) + waited * accumulation / link + update


def _weight_gradient_bytes(config: Model, pass_: MicroBatch) -> int:
    """What is done to the gradient of the head once for all chunks: it is set to zero."""
    return pass_.vocabulary_size * config.hidden_size * 4


def _crowding(machine: Machine, ranks_here: int) -> float:
    """How much longer passes over memory take when all ranks of the machine are at it."""
    if machine.device != "cpu" or ranks_here == 1:
        return 1.0
    own, whole = machine.rates.copy_bytes_per_second, machine.rates.machine_copy_bytes_per_second
    cores_wanted = machine.threads * ranks_here / machine.cores
    return max(1.0, own * ranks_here / whole, cores_wanted)


def _link_bytes_per_second(machine: Machine, ranks: int) -> float:
    """Bytes one rank can send a second while all others send as well."""
    if machine.device == "cpu":
        return machine.rates.machine_copy_bytes_per_second / _LOOPBACK_COPIES / ranks
    published = machine.accelerator.link_gbps_per_direction if machine.accelerator else None
    # Without a published link: a tenth of memory's own rate, the ratio of the slower machines in the table.
    return published * 1e9 if published else machine.rates.copy_bytes_per_second / 10
