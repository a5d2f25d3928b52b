"""Linear projection and cross-entropy in one, by chunks of tokens: the logits are never whole in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

IGNORED = -100
_CHUNK_BYTES = {"cpu": 16 * 2**20, "cuda": 128 * 2**20}
_FEWEST_TOKENS = 128  # every chunk passes over the whole gradient of the weight


class TokenLosses(NamedTuple):
    """What a forward pass with targets gives."""

    loss_sum: Tensor
    """Scalar: sum over valid targets of cross-entropy and z-loss, times `loss_scale`; differentiable."""
    token_losses: Tensor
    """[B, L], fp32 (fp64 of an fp64 model), detached: plain cross-entropy in nats, 0 at ignored targets."""


class Vocabulary:
    """Which rows of the output projection are at hand: here, all of them, and nothing is to be added to them."""

    first = 0
    """Token of the first row."""
    seen: Callable[[Tensor], None] | None = None
    """Who is shown the logits [tokens, V] of each chunk, of the rows at hand and before any cap; nobody may change
    them."""

    def rows(self, weight: Tensor) -> int:
        """Rows of the largest part of the projection, of which `weight` is one."""
        return len(weight)

    def largest(self, x: Tensor) -> Tensor:
        """The largest of all parts' `x`, elementwise. May overwrite `x`."""
        return x

    def sum(self, x: Tensor) -> Tensor:
        """The sum of all parts' `x`, elementwise. May overwrite `x`."""
        return x

    def whole(self, logits: Tensor, size: int) -> Tensor:
        """All `size` logits [..., V], of an x that holds those of the rows at hand."""
        return logits


class _Settings(NamedTuple):
    logit_softcap: float | None
    z_loss: float
    loss_scale: float
    chunk: int
    vocabulary: Vocabulary


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    logit_softcap: float | None = None,
    z_loss: float = 0.0,
    loss_scale: float = 1.0,
    chunk: int | None = None,
    vocabulary: Vocabulary | None = None,
) -> TokenLosses:
    """Cross-entropy of `hidden @ weight.T` against `targets`, summed over targets other than -100.

    hidden [B, L, D], weight [V, D], targets int64 [B, L]. Matrix products run in the autocast dtype
    (or hidden's), the softmax in fp32. Gradients of hidden and weight are computed in the forward
    pass, from each chunk's logits while they are there, so nothing is computed twice; the weight's
    is summed in fp32. `loss_scale` multiplies the gradient of the logits before it is cast to 16
    bits. `z_loss` times the squared log-partition is added to each token's loss (Chowdhery et al.
    2022). `chunk` is the number of tokens per chunk. Where `weight` has only some rows of the
    projection, `vocabulary` says which; hidden's gradient is then that of these rows.
    """
    vocabulary = vocabulary or Vocabulary()
    if chunk is None:
        bytes_of_token = 4 * vocabulary.rows(weight)
        chunk = max(_FEWEST_TOKENS, _CHUNK_BYTES.get(hidden.device.type, 2**26) // bytes_of_token)
    settings = _Settings(logit_softcap, z_loss, loss_scale, chunk, vocabulary)
    loss_sum, token_losses = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden.reshape(-1, hidden.shape[-1]), weight, targets.reshape(-1), settings, torch.is_grad_enabled()
    )
    return TokenLosses(loss_sum, token_losses.view(targets.shape))


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, settings: _Settings, differentiable: bool
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        compute = hidden.dtype
        if torch.is_autocast_enabled(device) and compute != torch.float64:
            compute = torch.get_autocast_dtype(device)
        accumulate = torch.float64 if compute == torch.float64 else torch.float32
        with torch.autocast(device, enabled=False):
            losses = _Losses(hidden, weight, targets, settings, compute, accumulate)
            losses.compute(differentiable and ctx.needs_input_grad[0], differentiable and ctx.needs_input_grad[1])
        ctx.save_for_backward(losses.hidden_gradient, losses.weight_gradient)
        ctx.mark_non_differentiable(losses.token_losses)
        return losses.loss_sum, losses.token_losses

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        if gradient.item() != 1.0:  # the loop's own case; it saves a pass over a matrix of the head's size
            hidden_gradient = None if hidden_gradient is None else hidden_gradient * gradient
            weight_gradient = None if weight_gradient is None else weight_gradient * gradient
        return hidden_gradient, weight_gradient, None, None, None


class _Losses:
    """One forward pass: buffers for its results, filled chunk by chunk."""

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        settings: _Settings,
        compute: torch.dtype,
        accumulate: torch.dtype,
    ) -> None:
        self._hidden, self._weight, self._targets = hidden, weight, targets
        self._settings, self._compute, self._accumulate = settings, compute, accumulate
        self.token_losses = torch.zeros(len(hidden), dtype=accumulate, device=hidden.device)
        self.loss_sum = torch.zeros((), dtype=accumulate, device=hidden.device)
        self.hidden_gradient: Tensor | None = None
        self.weight_gradient: Tensor | None = None

    def compute(self, of_hidden: bool, of_weight: bool) -> None:
        """Fill in the losses, and the gradients that are asked for."""
        weight, tokens = self._weight.to(self._compute), len(self._hidden)
        # One buffer for all chunks: fresh memory costs more than the product that fills it.
        logits = weight.new_empty((min(self._settings.chunk, tokens), len(weight)))
        if of_hidden:
            self.hidden_gradient = torch.empty_like(self._hidden)
        summed = torch.zeros_like(self._weight, dtype=self._accumulate) if of_weight else None
        for first in range(0, tokens, self._settings.chunk):
            rows = slice(first, min(first + self._settings.chunk, tokens))
            hidden = self._hidden[rows].to(self._compute)
            torch.mm(hidden, weight.T, out=logits[: len(hidden)])
            gradient = self._chunk(logits[: len(hidden)], rows, of_hidden or of_weight)
            if self.hidden_gradient is not None:
                self.hidden_gradient[rows] = gradient @ weight
            if summed is not None:
                if self._compute == self._accumulate:
                    summed.addmm_(gradient.T, hidden)
                else:
                    summed += gradient.T @ hidden
        if summed is not None:
            self.weight_gradient = summed.to(self._weight.dtype)

    def _chunk(self, logits: Tensor, rows: slice, differentiable: bool) -> Tensor:
        """Losses of one chunk, whose `logits` [tokens, V] are overwritten; returns their gradient."""
        softcap, z_loss, loss_scale, _, vocabulary = self._settings
        logits = logits.to(self._accumulate)
        if vocabulary.seen is not None:
            vocabulary.seen(logits)
        slope = None
        if softcap is not None:
            logits.div_(softcap).tanh_()
            slope = logits.square().neg_().add_(1.0) if differentiable else None
            logits.mul_(softcap)
        targets = self._targets[rows]
        valid = targets != IGNORED
        index = (targets - vocabulary.first)[:, None]
        here = valid[:, None] & (index >= 0) & (index < logits.shape[1])  # the target's row is at hand
        index = index.where(here, 0)
        largest = vocabulary.largest(_largest(logits))
        below_largest = vocabulary.sum(_at(logits.sub_(largest), index).where(here, 0.0))
        partition = vocabulary.sum(logits.exp_().sum(dim=-1, keepdim=True))
        log_partition = partition.log()
        losses = (log_partition - below_largest).where(valid[:, None], 0.0)
        log_partition = log_partition.add_(largest).where(valid[:, None], 0.0)
        self.token_losses[rows] = losses[:, 0]
        total = losses.add_(log_partition.square(), alpha=z_loss) if z_loss else losses
        self.loss_sum += total.sum() * loss_scale
        if not differentiable:
            return logits
        scale = valid[:, None].to(self._accumulate) * loss_scale
        of_partition = scale * (1.0 + 2.0 * z_loss * log_partition) if z_loss else scale
        gradient = logits.mul_(of_partition / partition)
        if gradient.shape[1]:
            gradient.scatter_add_(1, index, -scale.where(here, 0.0))
        if slope is not None:
            gradient.mul_(slope)
        return gradient.to(self._compute)


def _largest(logits: Tensor) -> Tensor:
    """The largest logit of each row [tokens, 1]; -inf where a rank has no row of the projection."""
    return logits.amax(dim=-1, keepdim=True) if logits.shape[1] else logits.new_full((len(logits), 1), -torch.inf)


def _at(logits: Tensor, index: Tensor) -> Tensor:
    return logits.gather(1, index) if logits.shape[1] else torch.zeros_like(index, dtype=logits.dtype)
