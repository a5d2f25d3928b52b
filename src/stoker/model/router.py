"""Which experts a token uses, with what weights, and what keeps the experts evenly loaded.

Everything here is computed in fp32 (fp64 for an fp64 model) whatever the model computes in: a rounding
that turns two experts around would be another model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stoker.recipe import MixtureOfExperts as Settings
from stoker.recipe import Model


class Routing:
    """What the routers of one forward pass share and remember.

    A forward pass that is run again in backward (activation recomputation) brings the same object
    along; the choices are then taken from it, and nothing is counted twice.
    """

    def __init__(self, loss_scale: Tensor | None = None) -> None:
        self.loss_scale = loss_scale
        """Scalar: the weight of one token's loss; None: no loss of the routers is wanted."""
        self.chosen: dict[nn.Module, Tensor] = {}
        """int64 [B, L, k] by router."""


class WholeSequences:
    """Which tokens of their sequences a router has at hand: here, all of them, in order of place."""

    @property
    def share(self) -> float:
        """This router's part of the losses of the tokens at hand, where others see the same ones."""
        return 1.0

    def length(self, at_hand: int) -> int:
        """Tokens of a whole sequence of which `at_hand` are here."""
        return at_hand

    def gather_choices(self, chosen_BLK: Tensor) -> Tensor:
        """The choices of the sequences' tokens, all of them, in order of place."""
        return chosen_BLK

    def own(self, x_BLK: Tensor) -> Tensor:
        """Of an `x` in the order of `gather_choices`, the tokens at hand."""
        return x_BLK

    def sum(self, x: Tensor) -> Tensor:
        """The sum of `x` over all that have tokens of the same sequences; never differentiated."""
        return x


class Choice(NamedTuple):
    """What a router decided for the tokens [B, L] at hand."""

    experts: Tensor
    """int64 [B, L, k]."""
    weights: Tensor
    """[B, L, k], fp32 or fp64, differentiable."""
    kept: Tensor | None
    """bool [B, L, k]: the expert had room for the token; None where all had."""
    loss: Tensor | None
    """Scalar to be minimised besides the main loss; see `with_loss`."""


class RouterStatistics(NamedTuple):
    """Sums over the tokens that passed through a router; they add up over ranks and micro-batches."""

    tokens_per_expert: Tensor
    """int64 [E]: choices, those included that were dropped."""
    tokens: Tensor
    """int64 []."""
    dropped: Tensor
    """int64 []: choices that found their expert full."""
    entropy: Tensor
    """float64 []: of each token's distribution over the experts, nats."""
    auxiliary_loss: Tensor
    """float64 []: of each sequence, times its tokens, without the coefficient; 1 per token is even load."""
    z_loss: Tensor
    """float64 []: squared log-partition, without the coefficient."""

    @classmethod
    def none(cls, experts: int, device: torch.device) -> RouterStatistics:
        """Of no tokens."""
        per_expert = torch.zeros(experts, dtype=torch.int64, device=device)
        count, total = per_expert.new_zeros(()), per_expert.new_zeros((), dtype=torch.float64)
        return cls(per_expert, count, count, total, total, total)


class Router(nn.Module):
    """Chooses `experts_per_token` of the experts for each token by a linear map of it."""

    selection_bias: Tensor

    def __init__(self, config: Model, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.weight = nn.Parameter(torch.empty(settings.experts, config.hidden_size))
        self.biased = settings.bias_update_rate > 0
        if self.biased:
            self.register_buffer("selection_bias", torch.zeros(settings.experts, dtype=torch.float32))
        self._counted: RouterStatistics | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Router:
        """Move or cast, but the bias stays fp32: bf16 would lose its small steps."""
        bias = self.selection_bias if self.biased else None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if bias is not None and self.selection_bias.dtype != bias.dtype:
            self.selection_bias = bias.to(self.selection_bias.device)
        return self

    def forward(self, x_BLD: Tensor, routing: Routing | None, sequences: WholeSequences) -> Choice:
        """The choice of experts for each token."""
        settings = self.settings
        routing = routing if routing is not None else Routing()
        logits: Tensor = _Logits.apply(x_BLD, self.weight)  # type: ignore[no-untyped-call]
        scores = torch.softmax(logits, dim=-1) if settings.gate == "softmax" else torch.sigmoid(logits)
        again = self in routing.chosen
        chosen = routing.chosen[self] if again else self._choose(scores.detach())
        routing.chosen[self] = chosen
        weights = scores.gather(-1, chosen)
        if settings.normalise_weights:
            weights = weights / _not_zero(weights.sum(dim=-1, keepdim=True))
        picked = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, chosen, True)
        kept = self._with_room(chosen, sequences)
        counts = sequences.sum(picked.sum(dim=1))
        shares = scores if settings.gate == "softmax" else scores / _not_zero(scores.sum(dim=-1, keepdim=True))
        # What is only counted keeps nothing for backward.
        balanced, squared = shares, logits
        if not settings.auxiliary_loss:
            balanced = shares.detach()
        if not settings.z_loss:
            squared = logits.detach()
        auxiliary = self._auxiliary(balanced, counts, sequences.length(x_BLD.shape[1]))
        z = squared.logsumexp(dim=-1).square().sum()
        if self.training and not again:
            self._count(picked, kept, shares.detach(), auxiliary.detach(), z.detach())
        loss = None
        wanted = settings.auxiliary_loss or settings.z_loss
        if torch.is_grad_enabled() and routing.loss_scale is not None and wanted:
            loss = (
                (settings.auxiliary_loss * auxiliary + settings.z_loss * z) * routing.loss_scale * sequences.share
            )
        return Choice(chosen, weights * settings.weight_scale, kept, loss)

    @torch.no_grad()
    def _choose(self, scores: Tensor) -> Tensor:
        """The experts with the best scores; of equal ones the first."""
        settings = self.settings
        wanted = scores + self.selection_bias if self.biased else scores
        if settings.chosen_groups < settings.groups:
            grouped = wanted.view(*wanted.shape[:-1], settings.groups, -1)
            best = min(1 if settings.group_score == "best" else 2, grouped.shape[-1])
            group_scores = grouped.topk(best, dim=-1).values.sum(dim=-1)
            groups = _best(group_scores, settings.chosen_groups)
            open_ = torch.zeros_like(group_scores, dtype=torch.bool).scatter_(-1, groups, True)
            wanted = grouped.masked_fill(~open_[..., None], float("-inf")).flatten(-2)
        return _best(wanted, settings.experts_per_token)

    def _with_room(self, chosen_BLK: Tensor, sequences: WholeSequences) -> Tensor | None:
        """Which choices found room in their expert: the first of each sequence, in order of place."""
        capacity = self.settings.capacity(sequences.length(chosen_BLK.shape[1]))
        if capacity is None:
            return None
        whole = sequences.gather_choices(chosen_BLK)
        picked = torch.zeros(*whole.shape[:2], self.settings.experts, dtype=torch.int32, device=whole.device)
        places = picked.scatter_(-1, whole, 1).cumsum(dim=1).gather(-1, whole)
        return sequences.own(places <= capacity)

    def _auxiliary(self, shares_BLE: Tensor, counts_BE: Tensor, length: int) -> Tensor:
        """E/k Σ f P of each sequence, times its tokens, summed: of the tokens at hand.

        f is the share of the sequence's tokens that chose an expert, P the mean of its share of the
        gate; the gradient goes through P alone.
        """
        factor = self.settings.experts / (self.settings.experts_per_token * length)
        return (shares_BLE.sum(dim=1) * counts_BE).sum() * factor

    @torch.no_grad()
    def _count(self, picked: Tensor, kept: Tensor | None, shares: Tensor, auxiliary: Tensor, z: Tensor) -> None:
        per_expert = picked.flatten(0, 1).sum(dim=0)
        found = RouterStatistics(
            tokens_per_expert=per_expert,
            tokens=per_expert.new_full((), picked.shape[0] * picked.shape[1]),
            dropped=per_expert.new_zeros(()) if kept is None else (~kept).sum(),
            entropy=torch.special.entr(shares).sum(dtype=torch.float64),
            auxiliary_loss=auxiliary.to(torch.float64),
            z_loss=z.to(torch.float64),
        )
        before = self._counted
        self._counted = found if before is None else RouterStatistics(*map(torch.add, before, found))

    @property
    def counted(self) -> RouterStatistics | None:
        """What was counted in training mode and not taken yet; None when that is nothing."""
        return self._counted

    def count_on(self, counted: RouterStatistics) -> None:
        """Go on from what was counted before."""
        self._counted = counted

    def take_statistics(self) -> RouterStatistics:
        """What was counted in training mode since the last call, which this forgets."""
        counted, self._counted = self._counted, None
        if counted is not None:
            return counted
        return RouterStatistics.none(self.settings.experts, self.weight.device)

    @torch.no_grad()
    def update_selection_bias(self, tokens_per_expert: Tensor) -> None:
        """Make experts with more than the mean of the whole batch's tokens less likely, the others more.

        Wang et al. 2024 (arXiv:2408.15664), algorithm 1. `tokens_per_expert` [E] must be summed over
        all ranks and micro-batches of a step, so that every rank moves alike. Nothing happens where
        no bias is used.
        """
        if self.biased:
            counts = tokens_per_expert.to(self.selection_bias.device, torch.float64)
            self.selection_bias += self.settings.bias_update_rate * torch.sign(counts.mean() - counts)


def with_loss(output: Tensor, loss: Tensor | None) -> Tensor:
    """`output` itself, whose backward pass also minimises the scalar `loss`, whatever it is used for.

    So a loss that arises inside a layer needs no way out of the model. It is not multiplied by the
    gradient that backward starts with.
    """
    if loss is None:
        return output
    return _WithLoss.apply(output, loss)  # type: ignore[no-any-return, no-untyped-call]


class _WithLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, loss: Tensor) -> Tensor:
        ctx.like = loss.dtype
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, torch.ones((), dtype=ctx.like, device=gradient.device)


class _Logits(torch.autograd.Function):
    """x W^T in fp32 or fp64 of tensors of any type, kept for backward in their own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        exact = torch.float64 if x.dtype == torch.float64 else torch.float32
        with torch.autocast(x.device.type, enabled=False):
            return x.to(exact) @ weight.to(exact).t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            of_weight = gradient.flatten(0, -2).t() @ x.flatten(0, -2).to(gradient.dtype)
            of_x = gradient @ weight.to(gradient.dtype)
        return of_x.to(x.dtype), of_weight.to(weight.dtype)


def _best(scores: Tensor, count: int) -> Tensor:
    """Places of the `count` largest, the largest first; of equal ones the first, which topk does not promise."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :count].contiguous()


def _not_zero(total: Tensor) -> Tensor:
    return total.clamp_min(torch.finfo(total.dtype).tiny)
