"""Ulysses attention (Jacobs et al. 2023): ranks exchange a part of the sequence with all heads for the whole
sequence with a part of the heads, attend, and exchange back.

Heads are dealt out as to tensor-parallel ranks, whatever their number: a key and value head goes to every rank
that has queries for it, and a rank may have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.layout.shares import AttentionShare, Bounds, attention_share
from stoker.model.attention import attend
from stoker.parallel import collectives
from stoker.parallel.context_parallel.local import attend_to_all
from stoker.parallel.context_parallel.masks import PartMask
from stoker.parallel.context_parallel.split import SequenceSplit, in_order, own_part


def ulysses_attention(
    q_BLHK: Tensor, k_BLGK: Tensor, v_BLGV: Tensor, mask: PartMask, softcap: float | None, group: dist.ProcessGroup
) -> Tensor:
    """[B, L, H, V]: of this rank's queries to the keys and values of all ranks of `group`."""
    if q_BLHK.shape[2] == 0:  # on all ranks alike
        return attend_to_all(q_BLHK, k_BLGK[:, :0], v_BLGV[:, :0], [], mask, softcap)
    shares = [_share(q_BLHK.shape[2], k_BLGK.shape[2], group.size(), rank) for rank in range(group.size())]
    q, k, v = _whole_sequence((q_BLHK, k_BLGK, v_BLGV), mask.length, shares, group)
    first, last = shares[group.rank()].queries
    mask = mask._replace(slopes=None if mask.slopes is None else mask.slopes[first:last])
    special = mask.starts is not None or mask.window is not None or mask.slopes is not None or softcap is not None
    if q.numel() and (mask.blocks is not None or not (special or q.device.type == "cpu")):
        mixed = attend(q, k, v, mask.blocks, softcap)
    else:
        mixed = attend_to_all(q, k, v, [(0, mask.length)], mask, softcap)
    return _all_heads(mixed, q_BLHK.shape[1], shares, group)


def _share(heads: int, kv_heads: int, ranks: int, rank: int) -> AttentionShare:
    share = attention_share(heads, kv_heads, ranks, rank)
    if share.queries[0] == share.queries[1]:
        return AttentionShare(share.queries, (0, 0), share.holders)
    return share


def _whole_sequence(
    qkv: Sequence[Tensor], length: int, shares: Sequence[AttentionShare], group: dist.ProcessGroup
) -> list[Tensor]:
    """Queries, keys and values [B, whole length, own heads, …] from those of own tokens with all heads."""

    def heads(share: AttentionShare) -> tuple[Bounds, Bounds, Bounds]:
        return share.queries, share.key_values, share.key_values

    messages = [
        x[:, :, first:last].reshape(-1)
        for share in shares
        for x, (first, last) in zip(qkv, heads(share), strict=True)
    ]
    numels = [message.numel() for message in messages]
    send = [sum(numels[index : index + 3]) for index in range(0, len(numels), 3)]
    tokens = SequenceSplit(group).sizes(length)
    shapes = [
        [(x.shape[0], size, last - first, x.shape[3]) for x, (first, last) in zip(qkv, heads(own), strict=True)]
        for own in (shares[group.rank()],)
        for size in tokens
    ]
    parts = _exchange(torch.cat(messages), send, shapes, group)
    return [in_order(of_ranks, 1, length) for of_ranks in zip(*parts, strict=True)]


def _all_heads(
    mixed: Tensor, own_length: int, shares: Sequence[AttentionShare], group: dist.ProcessGroup
) -> Tensor:
    """The mix [B, own length, H, V] of own tokens with all heads, from that of all tokens with own heads."""
    B, _, _, V = mixed.shape
    messages = [own_part(mixed, 1, group.size(), rank).reshape(-1) for rank in range(group.size())]
    shapes = [[(B, own_length, share.queries[1] - share.queries[0], V)] for share in shares]
    send = [message.numel() for message in messages]
    return torch.cat([part for (part,) in _exchange(torch.cat(messages), send, shapes, group)], dim=2)


def _exchange(
    flat: Tensor, send: Sequence[int], shapes: Sequence[Sequence[tuple[int, ...]]], group: dist.ProcessGroup
) -> list[list[Tensor]]:
    """All-to-all of numbers: what each rank sends, as tensors of its `shapes`."""
    numels = [[torch.Size(shape).numel() for shape in of_rank] for of_rank in shapes]
    received = collectives.exchange(flat, send, [sum(of_rank) for of_rank in numels], group)
    parts = iter(torch.split(received, [numel for of_rank in numels for numel in of_rank]))
    return [[next(parts).view(shape) for shape in of_rank] for of_rank in shapes]
