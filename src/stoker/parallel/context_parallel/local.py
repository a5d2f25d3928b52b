"""Attention of some tokens of a sequence to all its keys and values, which are at hand.

One custom operator, so that a compiled block holds it as one call whatever the documents' lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stoker.layout.shares import Bounds
from stoker.parallel.context_parallel.blockwise import Logits, Mixed, add_gradients, add_keys, nothing_mixed
from stoker.parallel.context_parallel.kernels import Heads, accumulator
from stoker.parallel.context_parallel.masks import PartMask
from stoker.parallel.context_parallel.pieces import Piece, document_starts, find_pieces


def attend_to_all(
    q_BLHK: Tensor, k_BLGK: Tensor, v_BLGV: Tensor, ranges: Sequence[Bounds], mask: PartMask, softcap: float | None
) -> Tensor:
    """[B, L, H, V]: of queries at the places of `ranges`, to keys and values of the whole sequence."""
    edges = [edge for bounds in ranges for edge in bounds]
    logits = mask.logits(softcap)
    return _attention(q_BLHK, k_BLGK, v_BLGV, mask.starts, edges, *logits)[0]  # type: ignore[no-any-return]


def outcome_like(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Room for a mix [B, L, H, V] and its logarithms of sums [B, H, L]."""
    B, L, H, _ = q.shape
    return q.new_empty(B, L, H, v.shape[-1]), q.new_empty(B, H, L, dtype=accumulator(q.dtype))


def heads_first(q: Tensor, k: Tensor, v: Tensor) -> Heads:
    """[B, L, heads, …] as [B, heads, L, …]."""
    return Heads(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))


def finished(mixed: Mixed, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The mix as attention returns it, [B, L, H, V], and its logarithms of sums."""
    return mixed.values.transpose(1, 2).to(dtype).contiguous(), mixed.log_sums


@torch.library.custom_op("stoker::attend_to_all", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor | None,
    edges: Sequence[int],
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    with torch.autocast(q.device.type, enabled=False):
        mixed = nothing_mixed(q.transpose(1, 2), v.shape[-1])
        pieces = _pieces(k.shape[1], starts, edges, window)
        add_keys(mixed, heads_first(q, k, v), pieces, Logits(window, slopes, softcap))
        return finished(mixed, q.dtype)


@_attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor | None,
    edges: Sequence[int],
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    return outcome_like(q, v)


@torch.library.custom_op("stoker::attend_to_all_backward", mutates_args=())
def _attention_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    log_sums: Tensor,
    starts: Tensor | None,
    edges: Sequence[int],
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(q.device.type, enabled=False):
        by_q, by_k, by_v = (torch.zeros(x.shape, dtype=log_sums.dtype, device=x.device) for x in (q, k, v))
        outcome = Mixed(mixed.transpose(1, 2), log_sums)
        pieces, logits = _pieces(k.shape[1], starts, edges, window), Logits(window, slopes, softcap)
        into = heads_first(by_q, by_k, by_v)
        add_gradients(into, gradient.transpose(1, 2), heads_first(q, k, v), outcome, pieces, logits)
        return by_q.to(q.dtype), by_k.to(k.dtype), by_v.to(v.dtype)


@_attention_backward.register_fake
def _(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    log_sums: Tensor,
    starts: Tensor | None,
    edges: Sequence[int],
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts, ctx.edges, ctx.window, slopes, ctx.softcap = inputs
    ctx.save_for_backward(q, k, v, *output, starts, slopes)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *kept, starts, slopes = ctx.saved_tensors
    gradients = _attention_backward(gradient, *kept, starts, ctx.edges, ctx.window, slopes, ctx.softcap)
    return (*gradients, None, None, None, None, None)


_attention.register_autograd(_differentiate, setup_context=_keep)


def _pieces(length: int, starts: Tensor | None, edges: Sequence[int], window: int | None) -> tuple[Piece, ...]:
    ranges = tuple(zip(edges[::2], edges[1::2], strict=True))
    return find_pieces(ranges, ((0, length),), document_starts(starts), window)
