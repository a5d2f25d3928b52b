"""What each rank of a layout holds: every parameter's part, from shapes alone, without processes or memory.

The same rules that `stoker.parallel` cuts by. Tests hold them against what real ranks hold.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch

from stoker.layout import Layout
from stoker.layout.ranks import expert_coordinate, expert_sizes
from stoker.layout.shares import Bounds, attention_share, chunk
from stoker.model import Decoder
from stoker.recipe import Model, Recipe
from stoker.recipe.stages import stage_layers, stage_to_rank

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
_OF_EXPERTS = ".feed_forward.experts."


@lru_cache(maxsize=8)
def parameter_shapes(config: Model, vocabulary_size: int, sequence_length: int) -> Shapes:
    """Name and shape of every parameter, from the model itself, built without memory."""
    with torch.device("meta"):
        model = Decoder(config, vocabulary_size, sequence_length)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


class Part(NamedTuple):
    """One parameter on one rank."""

    name: str
    stage: int
    whole: Shape
    """In the whole model."""
    local: Shape
    """What is left of it by tensor and expert parallelism: what the rank computes with."""
    held: Shape
    """What is left of that by data-parallel sharding: what the rank holds all the time."""

    @property
    def expert(self) -> bool:
        """Whether it belongs to experts that are routed to."""
        return _OF_EXPERTS in self.name

    @property
    def sharded(self) -> bool:
        """Whether other ranks hold other rows of what this one computes with."""
        return self.held != self.local

    @property
    def block(self) -> str | None:
        """The block it belongs to, as far as weights are gathered block by block."""
        first, number, *rest = self.name.split(".")
        if first == "blocks":
            return f"blocks.{number}"
        return f"mtp.{number}" if first == "mtp" and rest[0] == "block" else None

    def layer(self, config: Model) -> int | None:
        """The number of its layer, those of modules for further tokens counted after the others."""
        if self.block is None:
            return None
        first, number, *_ = self.name.split(".")
        return int(number) + (config.layers if first == "mtp" else 0)

    @property
    def local_elements(self) -> int:
        """Elements of `local`."""
        return math.prod(self.local)

    @property
    def held_elements(self) -> int:
        """Elements of `held`."""
        return math.prod(self.held)


@lru_cache(maxsize=256)
def _parts(config: Model, vocabulary_size: int, length: int, layout: Layout, rank: int) -> tuple[Part, ...]:
    shapes = parameter_shapes(config, vocabulary_size, length)
    found = []
    for stage, layers in own_stages(config, vocabulary_size, length, layout, layout.coordinate(rank).pp).items():
        last = stage == layout.stages - 1
        for name, shape in shapes.items():
            if _stands_in(name, config, stage, last, layers):
                local = _cut(name, shape, config, layout, rank)
                found.append(Part(name, stage, shape, local, _sharded(name, local, layout, rank)))
    return tuple(found)


def parts_of_rank(recipe: Recipe, vocabulary_size: int, rank: int) -> tuple[Part, ...]:
    """Every parameter that `rank` holds a part of; one that two of its stages have, twice."""
    return _parts(recipe.model, vocabulary_size, recipe.training.sequence_length, recipe.layout, rank)


def ranks_that_differ(recipe: Recipe) -> list[int]:
    """Ranks among which, for everything, is one that has most of it: the first of those with the same parts.

    Data-parallel parts are rounded up on the first ranks. Tensor-parallel ones are too, but for heads that
    are fewer than ranks.
    """
    layout = recipe.layout
    per_stage = layout.world_size // layout.pp
    return [pp * per_stage + tp for pp in range(layout.pp) for tp in tensor_parallel_kinds(recipe)]


def tensor_parallel_kinds(recipe: Recipe) -> list[int]:
    """The first tensor-parallel rank of each kind: those with as many heads and inner columns."""
    first: dict[tuple[int, ...], int] = {}
    for tp in range(recipe.layout.tp):
        first.setdefault(_widths(recipe.model, recipe.layout, tp), tp)
    return list(first.values())


def own_stages(
    config: Model, vocabulary_size: int, sequence_length: int, layout: Layout, pp: int
) -> dict[int, range]:
    """The stages of the ranks at place `pp`, and their layers."""
    layers = stage_layers(config, vocabulary_size, sequence_length, layout)
    return {stage: layers[stage] for stage, owner in enumerate(stage_to_rank(layout)) if owner == pp}


def _widths(config: Model, layout: Layout, tp: int) -> tuple[int, ...]:
    query, key_value = _heads(config, layout, tp)
    sizes = [config.ffn_hidden_size]
    if config.moe is not None:
        sizes += [config.expert_width, config.moe.shared_experts * config.expert_width]
    return (*(_size(chunk(size, layout.tp, tp)) for size in sizes), _size(query), _size(key_value))


def _heads(config: Model, layout: Layout, tp: int) -> tuple[Bounds, Bounds]:
    if config.latent_attention is not None:
        bounds = chunk(config.heads, layout.tp, tp)
        return bounds, bounds
    share = attention_share(config.heads, config.key_value_heads, layout.tp, tp)
    return share.queries, share.key_values


def _size(bounds: Bounds) -> int:
    return bounds[1] - bounds[0]


def local_model(config: Model, layout: Layout, tp: int) -> Model:
    """`config` with the heads and inner widths of one tensor-parallel rank; the stream stays as wide as it is.

    Not a model that could be built: a rank may have no head.
    """
    if layout.tp == 1:
        return config
    query, key_value = (_size(bounds) for bounds in _heads(config, layout, tp))
    changes: dict[str, object] = {
        "heads": query,
        "kv_heads": key_value if query else None,
        "ffn_hidden_size": _size(chunk(config.ffn_hidden_size, layout.tp, tp)),
    }
    if config.latent_attention is None:
        changes["head_size"] = config.size_of_head
    if config.moe is not None:
        width = config.expert_width
        own = _size(chunk(width, layout.tp, tp)) if layout.expert_tp else width
        changes["moe"] = config.moe.model_copy(update={"expert_ffn_hidden_size": max(1, own)})
    return config.model_copy(update=changes)


def _stands_in(name: str, config: Model, stage: int, last: bool, layers: range) -> bool:
    first, number, *_ = name.split(".")
    match first:
        case "blocks":
            return int(number) in layers
        case "embedding":
            return stage == 0 or (last and bool(config.tie_embeddings or config.mtp_depth))
        case "position_embedding":
            return stage == 0
    return last


def _cut(name: str, shape: Shape, config: Model, layout: Layout, rank: int) -> Shape:
    """The part of one parameter that expert and tensor parallelism leave to `rank`."""
    tp = layout.coordinate(rank).tp
    if _OF_EXPERTS in name:
        ep = expert_coordinate(layout, rank).ep
        shape = (_size(chunk(shape[0], layout.ep, ep)), *shape[1:])
        if not layout.expert_tp:
            return shape
        inner = 2 if name.endswith(".down") else 1
        return _replaced(shape, inner, _size(chunk(shape[inner], layout.tp, tp)))
    if layout.tp == 1:
        return shape
    if name in ("embedding.weight", "head.weight"):
        return _replaced(shape, 0, _size(chunk(shape[0], layout.tp, tp)))
    module, attribute = name.split(".")[-2:]
    if ".attention." in name:
        return _cut_attention(shape, module, attribute, config, layout, tp)
    if ".feed_forward." in name and module in ("gate", "up"):
        return _replaced(shape, 0, _size(chunk(shape[0], layout.tp, tp)))
    if ".feed_forward." in name and (module, attribute) == ("down", "weight"):
        return _replaced(shape, 1, _size(chunk(shape[1], layout.tp, tp)))
    return shape


def _cut_attention(shape: Shape, module: str, attribute: str, config: Model, layout: Layout, tp: int) -> Shape:
    query, key_value = (_size(bounds) for bounds in _heads(config, layout, tp))
    latent = config.latent_attention
    if latent is not None:
        up = {"query_up": config.size_of_head, "query": config.size_of_head}
        up["kv_up"] = latent.nope_head_size + latent.value_head_size
        if module in up:
            return _replaced(shape, 0, query * up[module])
    elif module == "query" or (module == "query_norm" and config.qk_norm == "full"):
        return _replaced(shape, 0, query * config.size_of_head)
    elif module in ("key", "value") or (module == "key_norm" and config.qk_norm == "full"):
        return _replaced(shape, 0, key_value * config.size_of_head)
    if (module, attribute) == ("output", "weight"):
        return _replaced(shape, 1, query * config.value_size)
    return shape


def _sharded(name: str, local: Shape, layout: Layout, rank: int) -> Shape:
    """Rows as even as whole rows allow: the first ranks have most."""
    if layout.dp_shard == 1:
        return local
    at = layout.coordinate(rank)
    parts, index = layout.shard_size, at.dp_shard * layout.cp + at.cp
    if _OF_EXPERTS in name:
        parts, index = expert_sizes(layout).shard, expert_coordinate(layout, rank).shard
    return _replaced(local, 0, _size(chunk(local[0], parts, index)))


def _replaced(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])
