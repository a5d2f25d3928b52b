"""Softmax attention put together from pieces: each piece's mix weighs in by its sum of exponentials
(the online softmax of Milakov and Gimelshein 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stoker.parallel.context_parallel.kernels import (
    Heads,
    Seen,
    accumulator,
    differentiate,
    has_fused_kernel,
    mix,
)
from stoker.parallel.context_parallel.pieces import Piece

_TILE_QUERIES = 512
"""Queries that are worked on at once where their logits, or a bias as large, must be held."""


class Logits(NamedTuple):
    """What is done to the logits of queries and keys."""

    window: int | None
    slopes: Tensor | None
    """ALiBi's, [H]."""
    softcap: float | None


class Mixed(NamedTuple):
    """Attention over the keys so far, heads first, in the accumulator's precision."""

    values: Tensor
    """[B, H, L, V]."""
    log_sums: Tensor
    """Logarithm of the sum of exponentials, -inf before the first key: [B, H, L]."""


def nothing_mixed(q: Tensor, value_size: int) -> Mixed:
    """What `q` [B, H, L, K] has before it has seen any key."""
    dtype = accumulator(q.dtype)
    log_sums = q.new_full(q.shape[:3], float("-inf"), dtype=dtype)
    return Mixed(q.new_zeros((*q.shape[:3], value_size), dtype=dtype), log_sums)


def add_keys(mixed: Mixed, qkv: Heads, pieces: Sequence[Piece], logits: Logits) -> None:
    """Let the queries see these keys and values too; changes `mixed`."""
    q, k, v = qkv
    if q.numel() == 0:
        return
    for piece, seen in _tiles(q, v, pieces, logits):
        rows, queries, keys = piece.rows, piece.query_slice, piece.key_slice
        more, log_sums = mix(q[rows, :, queries], k[rows, :, keys], v[rows, :, keys], seen)
        values, before = mixed.values[rows, :, queries], mixed.log_sums[rows, :, queries]
        together = torch.logaddexp(before, log_sums)
        values.mul_(torch.exp(before - together).unsqueeze(-1))
        values.add_(more * torch.exp(log_sums - together).unsqueeze(-1))
        before.copy_(together)


def add_gradients(
    into: Heads, gradient: Tensor, qkv: Heads, outcome: Mixed, pieces: Sequence[Piece], logits: Logits
) -> None:
    """Add to the gradients of q, k and v what goes by way of these keys; changes `into`.

    `outcome` is over all keys there are, its values in the precision of `q`; `gradient` is that of the values.
    """
    q, k, v = qkv
    if q.numel() == 0:
        return
    for piece, seen in _tiles(q, v, pieces, logits):
        rows, queries, keys = piece.rows, piece.query_slice, piece.key_slice
        more = differentiate(
            gradient[rows, :, queries],
            q[rows, :, queries],
            k[rows, :, keys],
            v[rows, :, keys],
            outcome.values[rows, :, queries],
            outcome.log_sums[rows, :, queries],
            seen,
        )
        into.q[rows, :, queries] += more.q
        into.k[rows, :, keys] += more.k
        into.v[rows, :, keys] += more.v


def _tiles(q: Tensor, v: Tensor, pieces: Sequence[Piece], logits: Logits) -> Iterator[tuple[Piece, Seen]]:
    window, slopes, softcap = logits
    whole = has_fused_kernel(q, v, slopes is not None, softcap) and window is None and slopes is None
    # Of a tile's logits outside a narrow window most would be hidden.
    queries = _TILE_QUERIES if window is None else min(_TILE_QUERIES, max(window, 64))
    for piece in pieces:
        for tile in piece.tiles(window, None if whole else queries):
            triangle = slopes is None and tile.is_triangle(window)
            free = slopes is None and (triangle or tile.sees_all(window))
            yield tile, Seen(triangle, None if free else _bias(tile, q, logits), softcap)


def _bias(piece: Piece, q: Tensor, logits: Logits) -> Tensor:
    """What is added to the piece's logits: [1, H or 1, Lq, Lk]."""
    dtype = accumulator(q.dtype)
    queries, keys = (torch.arange(*bounds, device=q.device) for bounds in (piece.queries, piece.keys))
    distance = queries[:, None] - keys
    hidden = distance < 0
    if logits.window is not None:
        hidden = hidden | (distance >= logits.window)
    if logits.slopes is None:
        bias = torch.zeros(1, 1, *distance.shape, device=q.device, dtype=dtype)
    else:
        bias = -logits.slopes.to(dtype)[None, :, None, None] * distance
    return bias.masked_fill(hidden, float("-inf"))
