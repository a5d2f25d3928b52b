"""Peak memory of one rank, by category, from a recipe alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from stoker.layout import Layout
from stoker.model import Decoder
from stoker.planning.activations import Activations, MicroBatch, activations
from stoker.recipe import Adafactor, Lion, Model, Muon, Recipe

_LOSS_CHUNK_BYTES = {"cpu": 16 * 2**20, "cuda": 128 * 2**20}
"""Size of one chunk of logits in fp32, as `stoker.model.loss` takes it."""
_FEWEST_LOSS_TOKENS = 128

Shapes = dict[str, tuple[int, ...]]


@lru_cache(maxsize=8)
def parameter_shapes(config: Model, vocabulary_size: int, sequence_length: int) -> Shapes:
    """Name and shape of every parameter, from the model itself, built without memory."""
    with torch.device("meta"):
        model = Decoder(config, vocabulary_size, sequence_length)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


@dataclass(frozen=True)
class MemoryBytes:
    """Bytes on the rank that holds most (the first), each category at its own highest."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int
    """16-bit copies of weights, weights gathered from other ranks, and what the optimizer needs for a moment."""
    total: int
    """At the highest moment of a step: not all categories are at their highest at once."""


def rows_per_rank(rows: int, ranks: int) -> int:
    """Rows of a parameter on the first of `ranks` that share it: as even as whole rows allow, rounded up."""
    return -(-rows // ranks)


def held_elements(shape: tuple[int, ...], dp_shard: int) -> int:
    """Elements of one parameter on the first rank, sharded over `dp_shard` ranks by its first dimension."""
    return rows_per_rank(shape[0], dp_shard) * math.prod(shape[1:])


def optimizer_bytes(recipe: Recipe, shapes: Shapes) -> int:
    """Bytes of the optimizer's state on the first rank, after the first step."""
    shards = recipe.layout.dp_shard
    width = 2 if recipe.training.precision == "pure_bf16" else 4
    total = 0
    for name, shape in shapes.items():
        held = held_elements(shape, shards)
        match recipe.training.optimizer:
            case Lion():
                total += held * width
            case Muon() if name.startswith("blocks.") and len(shape) == 2:
                total += held * width
            case Adafactor() if len(shape) == 2:
                total += 4 * (rows_per_rank(shape[0], shards) + shape[1]) + 4
            case Adafactor():
                total += 4 * held + 4
            case _:
                total += 2 * held * width + 4
    return total


def pass_of(recipe: Recipe, vocabulary_size: int, micro_batch_size: int, device: str) -> MicroBatch:
    """The forward and backward pass that a recipe asks of one rank."""
    training = recipe.training
    return MicroBatch(
        batch=micro_batch_size,
        length=training.sequence_length,
        vocabulary_size=vocabulary_size,
        precision=training.precision,
        compiled=training.compile,
        document_mask=training.document_mask,
        dense_masks=device == "cpu",
        loss_chunk=max(_FEWEST_LOSS_TOKENS, _LOSS_CHUNK_BYTES[device] // (4 * vocabulary_size)),
    )


def peak_memory(
    recipe: Recipe, vocabulary_size: int, micro_batch_size: int, accumulation: int, device: str
) -> MemoryBytes:
    """Peak bytes of one rank of `recipe.layout`, for micro-batches of `micro_batch_size` sequences."""
    layout = recipe.layout
    shapes = parameter_shapes(recipe.model, vocabulary_size, recipe.training.sequence_length)
    pass_ = pass_of(recipe, vocabulary_size, micro_batch_size, device)
    width = pass_.stream_width
    held = sum(held_elements(shape, layout.dp_shard) for shape in shapes.values())
    parameters = gradients = held * width
    optimizer = optimizer_bytes(recipe, shapes)
    kept = activations(recipe.model, pass_)
    gathered = _gathered_bytes(layout, shapes, width)
    casts = _cast_bytes(shapes) if pass_.casts else 0
    updating = _update_bytes(recipe, shapes, width)
    forward = kept.blocks + kept.outside_blocks
    moments = _pass_moments(recipe, shapes, kept, forward, width, accumulation)
    highest = max(
        moments.at_loss + casts + gathered,
        moments.at_end + gathered,
        gradients + updating,
    )
    return MemoryBytes(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        activations=forward + max(kept.loss_transient, kept.block_transient),
        buffers=max(casts + gathered, updating),
        total=max(parameters + optimizer + highest, _building_bytes(shapes, parameters, width)),
    )


def _building_bytes(shapes: Shapes, held: int, width: int) -> int:
    """Before the first step: every rank builds the whole fp32 model, then keeps its shards in their own type."""
    whole = 4 * sum(math.prod(shape) for shape in shapes.values())
    return whole if held == whole else whole + (held if width == 4 else whole // 2)


@dataclass(frozen=True)
class _PassMoments:
    """Bytes of activations and gradients together at the two moments when they can be highest."""

    at_loss: int
    at_end: int


def _pass_moments(
    recipe: Recipe, shapes: Shapes, kept: Activations, forward: int, width: int, accumulation: int
) -> _PassMoments:
    """Backward trades kept activations for gradients block by block: the highest moment is at one of its ends."""
    layout = recipe.layout
    head_name = "embedding.weight" if recipe.model.tie_embeddings else "head.weight"
    head = math.prod(shapes[head_name]) * width
    all_held = sum(held_elements(shape, layout.dp_shard) for shape in shapes.values()) * width
    # Data-parallel replicas keep their gradients in buckets from the first step on; otherwise a
    # gradient is there once it is computed, and stays over the micro-batches of a step.
    buckets = layout.dp_replicate > 1 and layout.dp_shard == 1
    already = all_held if buckets or accumulation > 1 else 0
    at_loss = forward + already + head + max(kept.loss_transient, kept.block_transient)
    embedding = math.prod(shapes["embedding.weight"]) * width
    arriving = embedding if already or recipe.model.tie_embeddings or recipe.model.mtp_depth else 0
    at_end = all_held + arriving + kept.block_transient
    return _PassMoments(at_loss=at_loss, at_end=at_end)


def _gathered_bytes(layout: Layout, shapes: Shapes, width: int) -> int:
    """Whole weights (and gradients on their way out) that a sharded rank holds beside its own shards."""
    if layout.dp_shard == 1:
        return 0
    blocks: dict[str, int] = {}
    root = 0
    for name, shape in shapes.items():
        if name.startswith("blocks."):
            block = name.split(".")[1]
            blocks[block] = blocks.get(block, 0) + math.prod(shape)
        else:
            root += math.prod(shape)
    # The root stays gathered; of the blocks one computes while the next arrives. In backward their
    # gradients are whole until they are summed.
    return (root + 3 * max(blocks.values())) * width


def _cast_bytes(shapes: Shapes) -> int:
    """16-bit copies of the blocks' matrices, which autograd keeps until backward has passed them."""
    own = ("query_up.weight", "kv_up.weight", "router.weight")  # which make their copies for a moment
    return 2 * sum(
        math.prod(shape)
        for name, shape in shapes.items()
        if name.startswith(("blocks.", "mtp.")) and len(shape) == 2 and not name.endswith(own)
    )


def _update_bytes(recipe: Recipe, shapes: Shapes, width: int) -> int:
    """What the optimizer holds for a moment while it updates."""
    shards = recipe.layout.dp_shard
    held = [held_elements(shape, shards) for shape in shapes.values()]
    # pure_bf16 keeps the weights from before the update, to count those that did not move.
    before = sum(held) * width if recipe.training.precision == "pure_bf16" else 0
    match recipe.training.optimizer:
        case Lion():
            return before + sum(held) * width
        case Adafactor():
            return before + 2 * 4 * max(held)
        case Muon():
            matrices = [math.prod(s) for name, s in shapes.items() if name.startswith("blocks.") and len(s) == 2]
            return before + 5 * 4 * max(matrices)
        case _:
            return before
