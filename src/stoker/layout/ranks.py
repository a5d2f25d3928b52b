"""Which ranks of a layout belong together, for each purpose."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from stoker.layout import DIMENSIONS, Layout
from stoker.layout.shares import AttentionShare, attention_share

Ranks = tuple[int, ...]


class ExpertCoordinate(NamedTuple):
    """Where one rank stands among those of its pipeline stage, as far as experts go."""

    replicate: int
    """Copy of the experts."""
    shard: int
    """Part of an expert-parallel rank's parameters (FSDP)."""
    ep: int
    """Part of the experts."""
    tp: int
    """Part of each expert."""


def expert_sizes(layout: Layout) -> ExpertCoordinate:
    """How many ranks there are on each of the experts' dimensions.

    Copies are those of dp_replicate where `ep` fits within one of them; otherwise all ranks that hold the
    same experts shard them, when dp_shard shards at all.
    """
    same = layout.expert_ranks // layout.ep
    if layout.dp_shard == 1:
        return ExpertCoordinate(same, 1, layout.ep, layout.expert_tp_size)
    within = layout.expert_ranks // layout.dp_replicate
    copies = layout.dp_replicate if within % layout.ep == 0 else 1
    return ExpertCoordinate(copies, same // copies, layout.ep, layout.expert_tp_size)


def expert_coordinate(layout: Layout, rank: int) -> ExpertCoordinate:
    """Where `rank` stands; neighbouring data-parallel ranks hold different experts."""
    sizes, at = expert_sizes(layout), layout.coordinate(rank)
    index = (at.dp_replicate * layout.dp_shard + at.dp_shard) * layout.cp + at.cp
    if not layout.expert_tp:
        index = index * layout.tp + at.tp
    same, ep = divmod(index, layout.ep)
    replicate, shard = divmod(same, sizes.shard)
    return ExpertCoordinate(replicate, shard, ep, at.tp if layout.expert_tp else 0)


def along(layout: Layout, rank: int, dimensions: Sequence[str]) -> Ranks:
    """The ranks that differ from `rank` in nothing but `dimensions`, in order."""
    at, strides = layout.coordinate(rank), _strides(layout)
    first = rank - sum(getattr(at, name) * strides[name] for name in dimensions)
    places = [range(0, getattr(layout, name) * strides[name], strides[name]) for name in dimensions]
    return tuple(sorted(first + sum(place) for place in product(*places)))


def _strides(layout: Layout) -> dict[str, int]:
    """How far apart in rank neighbours along each dimension are."""
    strides, stride = {}, 1
    for name in reversed(DIMENSIONS):
        strides[name] = stride
        stride *= getattr(layout, name)
    return strides


def among_experts(layout: Layout, rank: int, dimensions: Sequence[str]) -> Ranks:
    """The ranks of `rank`'s pipeline stage that differ from it in nothing but the experts' `dimensions`."""
    sizes, own = expert_sizes(layout), expert_coordinate(layout, rank)
    tp = layout.expert_tp_size
    first = rank - rank % (layout.world_size // layout.pp)
    choices = []
    for name in ExpertCoordinate._fields:
        at = getattr(own, name)
        choices.append(range(getattr(sizes, name)) if name in dimensions else range(at, at + 1))
    others = (
        ((copy * sizes.shard + shard) * sizes.ep + ep) * tp + part for copy, shard, ep, part in product(*choices)
    )
    return tuple(sorted(first + other for other in others))


def replicas(layout: Layout, rank: int) -> Ranks:
    """The ranks that hold the same parameters as `rank` and see other tokens."""
    return along(layout, rank, ("dp_replicate", "cp") if layout.dp_shard == 1 else ("dp_replicate",))


def shards(layout: Layout, rank: int) -> Ranks:
    """The ranks over which `rank`'s parameters are sharded."""
    return along(layout, rank, ("dp_shard", "cp")) if layout.dp_shard > 1 else (rank,)


def heads_of(layout: Layout, rank: int, heads: int, kv_heads: int) -> AttentionShare:
    """The attention heads of `rank`."""
    return attention_share(heads, kv_heads, layout.tp, layout.coordinate(rank).tp)


def head_holders(layout: Layout, rank: int, kv_heads: int) -> Ranks:
    """The ranks that hold the same key and value heads as `rank`, of one copy of the model."""
    share = heads_of(layout, rank, kv_heads, kv_heads)
    return along(layout, rank, ("tp",))[slice(*share.holders)]


def at_ends(layout: Layout, rank: int, first: int, last: int) -> Ranks:
    """The rank of the pipeline place `first` and that of `last` of `rank`'s pipeline; of others `rank` alone."""
    pipeline = along(layout, rank, ("pp",))
    return (
        tuple(sorted({pipeline[first], pipeline[last]})) if layout.coordinate(rank).pp in (first, last) else (rank,)
    )
