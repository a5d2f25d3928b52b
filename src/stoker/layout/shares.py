"""Who holds what when something is divided over ranks: one rule for every dimension, even or not."""

from __future__ import annotations

from dataclasses import dataclass

Bounds = tuple[int, int]
"""First element, and the one after the last."""


def chunk(length: int, parts: int, index: int) -> Bounds:
    """The part `index` of `length` elements cut into `parts`: each as long as the first, until none is left.

    It is the rule of `torch.chunk`, with empty parts at the end. Only the last parts can be shorter or
    empty, so that equal parts laid one after another and cut at `length` are the whole again.
    """
    size = -(-length // parts)
    return min(index * size, length), min((index + 1) * size, length)


@dataclass(frozen=True)
class AttentionShare:
    """The heads of one tensor-parallel rank."""

    queries: Bounds
    """Query heads."""
    key_values: Bounds
    """Key and value heads."""
    holders: Bounds
    """Tensor-parallel ranks that hold the same key and value heads."""


def attention_share(heads: int, kv_heads: int, ranks: int, rank: int) -> AttentionShare:
    """The heads of `rank` among `ranks`; query head h reads key head h // (heads / kv_heads).

    With at least as many key and value heads as ranks, whole groups are dealt out. With fewer, each
    group has ranks of its own, as even in number as can be, that divide its query heads and all hold its
    one key and value head. A rank may be left with no head.
    """
    group = heads // kv_heads
    if kv_heads >= ranks:
        first, last = chunk(kv_heads, ranks, rank)
        return AttentionShare((first * group, last * group), (first, last), (rank, rank + 1))
    own, more = divmod(ranks, kv_heads)
    # The first `more` groups have one rank more than the others.
    index = rank // (own + 1) if rank < more * (own + 1) else more + (rank - more * (own + 1)) // own
    first_holder = index * own + min(index, more)
    holders = own + (index < more)
    first, last = chunk(group, holders, rank - first_holder)
    return AttentionShare(
        (index * group + first, index * group + last), (index, index + 1), (first_holder, first_holder + holders)
    )
