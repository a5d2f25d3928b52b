"""Multi-head latent attention: keys and values of all heads from one small latent per token."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stoker.model.attention import Attend, attend
from stoker.model.forgetting import forgetting
from stoker.model.masks import AttentionMask
from stoker.model.normalisation import RMSNorm, build_norm
from stoker.model.position import Rotary, rotate
from stoker.recipe import Model


class Latents(NamedTuple):
    """All that queries, keys and values are computed from, and all that is kept of them for backward."""

    queries: Tensor
    """[B, L, query rank]; the queries themselves where they have no latent."""
    keys_and_values: Tensor
    """[B, L, kv rank], before its norm."""
    shared_key: Tensor
    """[B, L, rope size], before it is turned."""


class LatentAttention(nn.Module):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Rows of `query_up` (or `query`) are ordered by head, in each first the part without position, then the
    part with it; those of `kv_up` by head, in each first the key, then the value.
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        sizes = config.latent_attention
        assert sizes is not None
        D, self.heads = config.hidden_size, config.heads
        """Heads at hand; all projections to or from heads have them one after another."""
        self.nope_size, self.rope_size, self.value_size = (
            sizes.nope_head_size,
            sizes.rope_head_size,
            sizes.value_head_size,
        )
        query_width = self.heads * sizes.query_head_size
        self.has_query_latent = sizes.query_rank is not None
        if sizes.query_rank is None:
            self.query = nn.Linear(D, query_width, bias=False)
        else:
            self.query_down = nn.Linear(D, sizes.query_rank, bias=False)
            self.query_norm = build_norm("rms", sizes.query_rank, config.norm_epsilon)
            self.query_up = nn.Linear(sizes.query_rank, query_width, bias=False)
        self.kv_down = nn.Linear(D, sizes.kv_rank, bias=False)
        self.kv_norm = build_norm("rms", sizes.kv_rank, config.norm_epsilon)
        self.kv_up = nn.Linear(sizes.kv_rank, self.heads * (self.nope_size + self.value_size), bias=False)
        self.key_rope = nn.Linear(D, self.rope_size, bias=False)
        self.output = nn.Linear(self.heads * self.value_size, D, bias=config.attention_output_bias)
        self.softcap = config.attention_softcap
        self.attend: Attend = attend
        """As in `Attention`. Values are as wide as keys where a kernel wants that, else narrower."""

    def forward(self, x_BLD: Tensor, rotary: Rotary | None, mask: AttentionMask) -> Tensor:
        """[B, L, D] to [B, L, D]; `rotary` and `mask` are shared by all blocks."""
        assert rotary is not None
        queries = self.query_down(x_BLD) if self.has_query_latent else self.query(x_BLD)
        latents = Latents(queries, self.kv_down(x_BLD), self.key_rope(x_BLD))
        mixed_BLHV = self._mix(latents, rotary, mask)[..., : self.value_size]
        B, L = mixed_BLHV.shape[:2]
        return self.output(mixed_BLHV.reshape(B, L, self.heads * self.value_size))  # type: ignore[no-any-return]

    def _mix(self, latents: Latents, rotary: Rotary, mask: AttentionMask) -> Tensor:
        # Backward computes in what forward did, but no longer knows it from the surroundings.
        compute, device = self.kv_up.weight.dtype, latents.keys_and_values.device.type
        if torch.is_autocast_enabled(device) and compute != torch.float64:
            compute = torch.get_autocast_dtype(device)

        def again(*kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.expand(Latents(*kept), rotary, compute)

        if torch.compiler.is_compiling():
            # The compiler computes again what is inside, wherever backward needs it.
            q, k, v = checkpoint(again, *latents, use_reentrant=False, preserve_rng_state=False)
            return self.attend(q, k, v, mask, self.softcap)
        q, k, v = again(*latents)

        with forgetting((q, k, v), again, latents):
            return self.attend(q, k, v, mask, self.softcap)

    def expand(self, latents: Latents, rotary: Rotary, compute: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys [B, L, H, K] and values, [B, L, H, K] on a processor, [B, L, H, V] elsewhere.

        Products are computed in `compute`.
        """
        B, L, _ = latents.keys_and_values.shape
        queries = latents.queries
        if self.has_query_latent:
            queries = _normed_linear(queries, self.query_norm, self.query_up, compute)
        expanded = _normed_linear(latents.keys_and_values, self.kv_norm, self.kv_up, compute)
        queries = queries.view(B, L, self.heads, self.nope_size + self.rope_size)
        expanded = expanded.view(B, L, self.heads, self.nope_size + self.value_size)
        plain, turned = queries.split([self.nope_size, self.rope_size], dim=-1)  # type: ignore[no-untyped-call]
        q = torch.cat((plain, rotate(turned, rotary)), dim=-1)
        key, value = expanded.split([self.nope_size, self.value_size], dim=-1)  # type: ignore[no-untyped-call]
        shared = rotate(latents.shared_key[:, :, None].to(key.dtype), rotary)
        k = torch.cat((key, shared.expand(B, L, self.heads, self.rope_size)), dim=-1)
        # Kernels for processors know one head size only. Done here, so that backward can do it again.
        missing = q.shape[-1] - self.value_size if value.device.type == "cpu" else 0
        return q, k, F.pad(value, (0, missing)) if missing else value.contiguous()


def _normed_linear(x: Tensor, norm: nn.Module, linear: nn.Linear, compute: torch.dtype) -> Tensor:
    """linear(norm(x)), of which backward keeps x alone."""
    assert isinstance(norm, RMSNorm)
    if torch.compiler.is_compiling():
        return linear(norm(x))  # type: ignore[no-any-return]
    return _NormedLinear.apply(  # type: ignore[no-any-return, no-untyped-call]
        x, norm.weight, linear.weight, norm.eps, compute
    )


class _NormedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, weight: Tensor, epsilon: float, compute: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, scale, weight)
        ctx.epsilon, ctx.compute = epsilon, compute
        with torch.autocast(x.device.type, enabled=False):
            normed = F.rms_norm(x.to(scale.dtype), scale.shape, scale, epsilon)
            return F.linear(normed.to(compute), weight.to(compute))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, weight = ctx.saved_tensors
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            x, scale = x.detach().requires_grad_(), scale.detach().requires_grad_()
            normed = F.rms_norm(x.to(scale.dtype), scale.shape, scale, ctx.epsilon)
        with torch.autocast(x.device.type, enabled=False):
            rows = gradient.to(ctx.compute).flatten(0, -2)
            of_weight = rows.t() @ normed.detach().to(ctx.compute).flatten(0, -2)
            of_normed = (rows @ weight.to(ctx.compute)).view_as(normed).to(normed.dtype)
            of_x, of_scale = torch.autograd.grad(normed, (x, scale), of_normed)
        return of_x, of_scale, of_weight.to(weight.dtype), None, None
