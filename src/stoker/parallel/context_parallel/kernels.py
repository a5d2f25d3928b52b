"""Attention of some queries to some keys, and its gradients, by what the device does best.

Heads come first here: q [B, H, Lq, K], k [B, G, Lk, K], v [B, G, Lk, V].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_aten = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)


class Heads(NamedTuple):
    """Queries, keys and values, or gradients of them: [B, heads, L, …]."""

    q: Tensor
    k: Tensor
    v: Tensor


class Seen(NamedTuple):
    """Which keys the queries see, and what is done to the logits."""

    triangle: bool
    """Query i sees the keys up to i."""
    bias: Tensor | None
    """[1, H or 1, Lq, Lk]: added to the logits; -inf hides a key."""
    softcap: float | None


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """What sums over values of `dtype` are taken in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def has_fused_kernel(q: Tensor, v: Tensor, biased: bool, softcap: float | None) -> bool:
    """Whether a kernel does these inputs without holding the logits."""
    if softcap is not None:
        return False
    if q.device.type == "cpu":
        return True
    widest = max(q.shape[-1], v.shape[-1])
    return q.device.type == "cuda" and q.dtype in _HALF and widest <= 256 and not biased


def mix(q: Tensor, k: Tensor, v: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
    """The mix of values [B, H, Lq, V] and the logarithm of each query's sum of exponentials [B, H, Lq]."""
    if not has_fused_kernel(q, v, seen.bias is not None, seen.softcap):
        return _mix_plainly(q, k, v, seen)
    scale, width = q.shape[-1] ** -0.5, v.shape[-1]
    q, k, v = _equally_wide(q, k, v)
    if q.device.type == "cpu":
        mixed, log_sums = _aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, seen.triangle, attn_mask=seen.bias, scale=scale
        )
    else:
        mixed, log_sums = _aten._scaled_dot_product_flash_attention(q, k, v, 0.0, seen.triangle, scale=scale)[:2]
    return mixed[..., :width], log_sums


def differentiate(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, log_sums: Tensor, seen: Seen
) -> Heads:
    """Gradients of q, k and v by way of these keys, where `mixed` and `log_sums` are over all keys there are."""
    if not has_fused_kernel(q, v, seen.bias is not None, seen.softcap):
        return _differentiate_plainly(gradient, q, k, v, mixed, log_sums, seen)
    scale, widths = q.shape[-1] ** -0.5, [x.shape[-1] for x in (q, k, v)]
    gradient, q, k, v, mixed = _equally_wide(gradient, q, k, v, mixed)
    if q.device.type == "cpu":
        gradients = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, q, k, v, mixed, log_sums, 0.0, seen.triangle, attn_mask=seen.bias, scale=scale
        )
    else:
        nothing = torch.empty(0, dtype=torch.int64, device=q.device)
        lengths: tuple[Any, ...] = (None, None, q.shape[2], k.shape[2])
        gradients = _aten._scaled_dot_product_flash_attention_backward(
            gradient, q, k, v, mixed, log_sums, *lengths, 0.0, seen.triangle, nothing, nothing, scale=scale
        )
    return Heads(*(x[..., :width] for x, width in zip(gradients, widths, strict=True)))


def _equally_wide(*tensors: Tensor) -> list[Tensor]:
    """The kernels want one head size, on CUDA a multiple of 8: zeros beyond the end change no product."""
    width = max(x.shape[-1] for x in tensors)
    if tensors[0].device.type == "cuda":
        width = -(-width // 8) * 8
    return [x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in tensors]


def _logits(q: Tensor, k: Tensor, seen: Seen) -> tuple[Tensor, Tensor | None]:
    """Logits [B, G, H/G, Lq, Lk] and, where they are capped, the tanh that caps them."""
    scores = (q @ k.unsqueeze(2).mT) * (q.shape[-1] ** -0.5)
    bent = None if seen.softcap is None else torch.tanh(scores / seen.softcap)
    if bent is not None and seen.softcap is not None:
        scores = bent * seen.softcap
    if seen.bias is not None:
        heads = q.shape[1:3] if seen.bias.shape[1] > 1 else (1, 1)
        scores = scores + seen.bias.view(1, *heads, *seen.bias.shape[2:])
    if seen.triangle:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0, 0], dtype=torch.bool).triu(1), float("-inf"))
    return scores, bent


def _grouped(x: Tensor, kv_heads: int, dtype: torch.dtype) -> Tensor:
    """[B, H, L, …] as [B, G, H/G, L, …]."""
    B, H, *rest = x.shape
    return x.to(dtype).reshape(B, kv_heads, H // kv_heads, *rest)


def _mix_plainly(q: Tensor, k: Tensor, v: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
    dtype = accumulator(q.dtype)
    scores, _ = _logits(_grouped(q, k.shape[1], dtype), k.to(dtype), seen)
    log_sums = torch.logsumexp(scores, dim=-1)
    mixed = torch.exp(scores - log_sums.unsqueeze(-1)) @ v.to(dtype).unsqueeze(2)
    return mixed.flatten(1, 2), log_sums.flatten(1, 2)


def _differentiate_plainly(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, log_sums: Tensor, seen: Seen
) -> Heads:
    dtype, G = accumulator(q.dtype), k.shape[1]
    q, gradient, mixed, log_sums = (_grouped(x, G, dtype) for x in (q, gradient, mixed, log_sums))
    k, v = k.to(dtype), v.to(dtype)
    scores, bent = _logits(q, k, seen)
    weights = torch.exp(scores - log_sums.unsqueeze(-1))
    by_weight = gradient @ v.unsqueeze(2).mT
    by_logit = weights * (by_weight - (gradient * mixed).sum(-1, keepdim=True))
    if bent is not None:
        by_logit = by_logit * (1 - bent.square())
    by_logit = by_logit * (q.shape[-1] ** -0.5)
    by_q = by_logit @ k.unsqueeze(2)
    return Heads(by_q.flatten(1, 2), (by_logit.mT @ q).sum(2), (weights.mT @ gradient).sum(2))
