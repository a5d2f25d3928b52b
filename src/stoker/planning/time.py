"""Time of one step on one rank: every operation at the rate that was measured for its kind."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from stoker.planning.activations import MicroBatch
from stoker.planning.machine import Machine
from stoker.planning.memory import Shapes, held_elements
from stoker.planning.operations import (
    attention_flops,
    block_bytes,
    block_matmuls,
    loss_bytes,
    loss_matmuls,
    outside_bytes,
)
from stoker.recipe import Adafactor, Lion, Model, Muon, Recipe

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


def compute_seconds(config: Model, pass_: MicroBatch, machine: Machine, ranks_here: int) -> ComputeSeconds:
    """Forward and backward of one micro-batch while `ranks_here` ranks share the machine's memory."""
    rates, crowding = machine.rates, _crowding(machine, ranks_here)
    of_loss = sum(rates.matmul_seconds(matmul) for matmul in loss_matmuls(config, pass_))
    of_loss += loss_bytes(config, pass_) / rates.loss_bytes_per_second * crowding
    # The last chunk may be short; what is left of it costs its share.
    of_loss *= pass_.tokens / min(pass_.loss_chunk, pass_.tokens)
    of_loss *= 1 + config.mtp_depth
    blocks = config.layers + config.mtp_depth
    moved = blocks * block_bytes(config, pass_) + outside_bytes(config, pass_)
    kinds = Counter(map(config.has_experts, range(blocks)))
    return ComputeSeconds(
        matmul=sum(
            count
            * sum(
                rates.matmul_seconds(m) for m in block_matmuls(config, pass_.tokens, blocks - 1 if experts else 0)
            )
            for experts, count in kinds.items()
        ),
        attention=blocks * attention_flops(config, pass_) / rates.attention_flops_per_second,
        pointwise=moved / rates.pointwise_bytes_per_second * crowding,
        loss=of_loss + _weight_gradient_bytes(config, pass_) / rates.update_bytes_per_second * crowding,
    )


def update_seconds(recipe: Recipe, shapes: Shapes, machine: Machine, ranks_here: int) -> float:
    """Gradient norm, clipping and the optimizer's update, on the first rank."""
    layout, width = recipe.layout, 2 if recipe.training.precision == "pure_bf16" else 4
    held = {name: held_elements(shape, layout.dp_shard) for name, shape in shapes.items()}
    clip = 3 if recipe.training.gradient_clip is not None else 1
    moved, flops = clip * sum(held.values()) * width, 0.0
    for name, elements in held.items():
        shape = shapes[name]
        match recipe.training.optimizer:
            case Lion():
                moved += 13 * elements * width
            case Adafactor():
                moved += 30 * elements * 4
            case Muon(newton_schulz_steps=steps) if name.startswith("blocks.") and len(shape) == 2:
                # Every rank that shares a matrix orthogonalises all of it.
                short, long = min(shape), max(shape)
                flops += steps * (4 * short * short * long + 2 * short**3)
                moved += 12 * elements * width
            case _:
                moved += 7 * elements * width
    if recipe.training.precision == "pure_bf16":
        moved += 4 * sum(held.values()) * width  # weights from before the update, to count those that did not move
    seconds = moved / machine.rates.update_bytes_per_second * _crowding(machine, ranks_here)
    return seconds + flops / machine.rates.matmul_flops_per_second


def communication_seconds(recipe: Recipe, shapes: Shapes, machine: Machine, accumulation: int) -> float:
    """Summing gradients over ranks (and gathering weights, when sharded), as if nothing else went on meanwhile.

    A ring sends each byte (ranks - 1) / ranks times to reduce it and as often to gather it.
    """
    layout, width = recipe.layout, 2 if recipe.training.precision == "pure_bf16" else 4
    size = sum(math.prod(shape) for shape in shapes.values()) * width
    seconds = 0.0
    if layout.dp_shard > 1:
        # Weights are gathered before each block's forward and backward pass, of every micro-batch.
        part = (layout.dp_shard - 1) / layout.dp_shard
        seconds += size * part * (2 * accumulation + 1) / _link_bytes_per_second(machine, layout.world_size)
    if layout.dp_replicate > 1:
        part = (layout.dp_replicate - 1) / layout.dp_replicate
        seconds += 2 * size / layout.dp_shard * part / _link_bytes_per_second(machine, layout.world_size)
    return seconds


def exposed_seconds(communication: float, compute: float, machine: Machine, ranks: int) -> float:
    """The part of `communication` that the step waits for.

    Accelerators send while backward computes, which is two thirds of the computation; on a processor
    whose cores all compute, sending takes their time away.
    """
    if machine.device == "cuda":
        return max(0.05 * communication, communication - 2 / 3 * compute)
    idle_cores = machine.cores - machine.threads * ranks
    return communication if idle_cores < ranks else max(0.2 * communication, communication - 2 / 3 * compute)


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
