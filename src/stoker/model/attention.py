"""Causal self-attention: multi-head, grouped or multi-query; rotary; q/k norm; window; soft-cap."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from stoker.model.document_attention import document_attention
from stoker.model.masks import AttentionMask, PackedDocuments
from stoker.model.normalisation import build_norm
from stoker.model.position import Rotary, rotate
from stoker.recipe import Model

Attend = Callable[[Tensor, Tensor, Tensor, Any, float | None], Tensor]
"""From queries, keys, values, mask and soft-cap to the mix, as `attend` does it."""


class Attention(nn.Module):
    """Self-attention of `heads` query heads over `kv_heads` key and value heads (Ainslie et al. 2023)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        D, self.head_size = config.hidden_size, config.size_of_head
        self.heads, self.kv_heads = config.heads, config.key_value_heads
        query_width, kv_width = self.heads * self.head_size, self.kv_heads * self.head_size
        self.query = nn.Linear(D, query_width, bias=config.attention_bias)
        self.key = nn.Linear(D, kv_width, bias=config.attention_bias)
        self.value = nn.Linear(D, kv_width, bias=config.attention_bias)
        self.output = nn.Linear(query_width, D, bias=config.attention_output_bias)
        self.qk_norm = config.qk_norm
        if config.qk_norm != "none":
            whole = config.qk_norm == "full"
            self.query_norm = build_norm("rms", query_width if whole else self.head_size, config.norm_epsilon)
            self.key_norm = build_norm("rms", kv_width if whole else self.head_size, config.norm_epsilon)
        self.softcap = config.attention_softcap
        self.attend: Attend = attend
        """The attention itself, after projections; another one may reach tokens that are not at hand."""

    def forward(self, x_BLD: Tensor, rotary: Rotary | None, mask: AttentionMask) -> Tensor:
        """[B, L, D] to [B, L, D]; `rotary` and `mask` are shared by all blocks."""
        q, k, v = self.query(x_BLD), self.key(x_BLD), self.value(x_BLD)
        B, L, _ = q.shape
        if self.qk_norm == "full":
            q, k = self.query_norm(q), self.key_norm(k)
        q = q.view(B, L, self.heads, self.head_size)
        k = k.view(B, L, self.kv_heads, self.head_size)
        v = v.view(B, L, self.kv_heads, self.head_size)
        if self.qk_norm == "head":
            q, k = self.query_norm(q), self.key_norm(k)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        # Under autocast the norms give fp32 back; attention needs one dtype.
        q, k = q.to(v.dtype), k.to(v.dtype)
        mixed_BLHK = self.attend(q, k, v, mask, self.softcap)
        return self.output(mixed_BLHK.reshape(B, L, self.heads * self.head_size))  # type: ignore[no-any-return]


def attend(q_BLHK: Tensor, k_BLGK: Tensor, v_BLGK: Tensor, mask: AttentionMask, softcap: float | None) -> Tensor:
    """Softmax attention scaled by 1/sqrt(K): [B, L, H, K]; query head h reads key head h // (H / G).

    Values may be narrower than keys; the mix is then as wide as they are.
    """
    if isinstance(mask, PackedDocuments):
        return _as_wide_as_keys(document_attention, q_BLHK, k_BLGK, v_BLGK, mask.starts)
    q, k, v = q_BLHK.transpose(1, 2), k_BLGK.transpose(1, 2), v_BLGK.transpose(1, 2)
    grouped = q.shape[1] != k.shape[1]
    if isinstance(mask, BlockMask):
        mixed = _attend_by_blocks(q, k, v, mask, softcap, grouped)
    elif softcap is not None:
        mixed = _attend_plainly(q, k, v, mask, softcap)
    else:
        dense = None if mask is None else mask.to(q.dtype)
        kernel = partial(F.scaled_dot_product_attention, is_causal=mask is None, enable_gqa=grouped)
        mixed = _as_wide_as_keys(kernel, q, k, v, dense) if q.device.type == "cpu" else kernel(q, k, v, dense)
    return mixed.transpose(1, 2)


def _as_wide_as_keys(kernel: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """What a kernel gives that wants values as wide as keys, as those for processors do."""
    width = v.shape[-1]
    if width == q.shape[-1]:
        return kernel(q, k, v, mask)
    return kernel(q, k, F.pad(v, (0, q.shape[-1] - width)), mask)[..., :width]


def _attend_plainly(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, softcap: float) -> Tensor:
    """Attention with capped logits, which no fused kernel knows; holds [B, H, L, L] in memory."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    logits = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
    logits = torch.tanh(logits / softcap) * softcap
    if mask is None:
        L = q.shape[-2]
        future = torch.ones(L, L, dtype=torch.bool, device=q.device).triu(1)
        logits = logits.masked_fill(future, float("-inf"))
    else:
        logits = logits + mask
    accumulate = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.softmax(logits, dim=-1, dtype=accumulate).to(v.dtype) @ v


def _attend_by_blocks(
    q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, softcap: float | None, grouped: bool
) -> Tensor:
    def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score if softcap is None else torch.tanh(score / softcap) * softcap

    score = None if softcap is None else capped
    kernel: Any = flex_attention if torch.compiler.is_compiling() else _compiled_flex_attention()
    return kernel(q, k, v, score_mod=score, block_mask=mask, enable_gqa=grouped)  # type: ignore[no-any-return]


@cache
def _compiled_flex_attention() -> Callable[..., Tensor]:
    """Without compilation flex_attention holds all logits in memory, which is what it is there to avoid."""
    return torch.compile(flex_attention, dynamic=False)
