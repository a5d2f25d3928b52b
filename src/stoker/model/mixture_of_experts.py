"""A mixture of experts in the place of a block's feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stoker.model.experts import Experts
from stoker.model.feed_forward import GatedFeedForward
from stoker.model.router import Choice, Router, RouterStatistics, Routing, WholeSequences, with_loss
from stoker.recipe import MixtureOfExperts as Settings
from stoker.recipe import Model

Dispatch = Callable[[Experts, Tensor, Tensor], Tensor]
"""From experts, rows [N, D] sorted by expert and counts int64 [E], which sum to N, to each row's result [N, D]."""


def compute_here(experts: Experts, rows_ND: Tensor, counts_E: Tensor) -> Tensor:
    """The dispatch where all experts are at hand."""
    return experts(rows_ND, counts_E)  # type: ignore[no-any-return]


class MixtureOfExperts(nn.Module):
    """Each token through a few of many experts, and through the shared ones (Dai et al. 2024)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        assert config.moe is not None
        self.settings: Settings = config.moe
        self.router = Router(config, self.settings)
        self.experts = Experts(config, self.settings.experts)
        self.shared: GatedFeedForward | None = None
        if self.settings.shared_experts:
            width = self.settings.shared_experts * config.expert_width
            self.shared = GatedFeedForward(config.model_copy(update={"ffn_hidden_size": width}))
        self.dispatch: Dispatch = compute_here
        """The experts' computation; another one may send rows to where their experts are."""
        self.sequences = WholeSequences()
        """How the router sees tokens of its sequences that are not at hand."""

    def forward(self, x_BLD: Tensor, routing: Routing | None = None) -> Tensor:
        """[B, L, D] to [B, L, D]; `routing` is shared by all blocks of a forward pass."""
        choice: Choice = self.router(x_BLD, routing, self.sequences)
        device, x = x_BLD.device.type, x_BLD
        if torch.is_autocast_enabled(device) and x.dtype != torch.float64:
            x = x.to(torch.get_autocast_dtype(device))
        order = _Order(choice, self.settings.experts)
        rows = _Spread.apply(x.flatten(0, 1), order)  # type: ignore[no-untyped-call]
        results = self.dispatch(self.experts, rows, order.counts)
        mixed = _Combine.apply(results, choice.weights.flatten(0, 1), order)  # type: ignore[no-untyped-call]
        output = with_loss(mixed.view_as(x_BLD), choice.loss)
        return output if self.shared is None else output + self.shared(x_BLD)

    def take_statistics(self) -> RouterStatistics:
        """See `Router.take_statistics`."""
        return self.router.take_statistics()

    def counted_loss(self) -> Tensor:
        """float64 []: the losses of its router over the tokens counted since the last call, which this forgets."""
        settings, counted = self.router.settings, self.take_statistics()
        total = settings.auxiliary_loss * counted.auxiliary_loss + settings.z_loss * counted.z_loss
        return total * self.sequences.share

    def update_selection_bias(self, tokens_per_expert: Tensor) -> None:
        """See `Router.update_selection_bias`."""
        self.router.update_selection_bias(tokens_per_expert)


class _Order:
    """Choices [tokens, k] in order of expert; within an expert in order of token. Dropped ones are left out."""

    def __init__(self, choice: Choice, experts: int) -> None:
        self.per_token = choice.experts.shape[-1]
        flat = choice.experts.flatten()
        self.kept = None if choice.kept is None else choice.kept.reshape(-1, self.per_token)
        if self.kept is not None:
            flat = flat.where(self.kept.flatten(), experts)
        by_expert, order = flat.sort(stable=True)
        bounds = torch.searchsorted(by_expert, torch.arange(experts + 1, device=flat.device))
        self.counts = bounds.diff()
        """int64 [E]: rows of each expert."""
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        self.places = place.view(-1, self.per_token)
        """int64 [tokens, k]: row of each choice; of a dropped one, 0."""
        if self.kept is not None:
            order = order[: int(self.counts.sum())]
            self.places = self.places.where(self.kept, 0)
        self.choices = order
        """int64 [rows]: the choice that each row is."""
        self.tokens = order // self.per_token
        """int64 [rows]: the token that each row is."""

    def of_choice(self, x_ND: Tensor, number: int) -> Tensor:
        """[tokens, D]: of each token, the row of its choice `number`; zeros where that was dropped."""
        rows = x_ND[self.places[:, number]]
        return rows if self.kept is None else rows.masked_fill_(~self.kept[:, number, None], 0.0)


class _Spread(torch.autograd.Function):
    """A row for each choice. Backward adds up each token's rows in a fixed order, which indexing does not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: _Order) -> Tensor:
        ctx.order = order
        return x[order.tokens]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        order: _Order = ctx.order
        exact = torch.float64 if gradient.dtype == torch.float64 else torch.float32
        total = order.of_choice(gradient, 0).to(exact)
        for number in range(1, order.per_token):
            total += order.of_choice(gradient, number)
        return total.to(gradient.dtype), None


class _Combine(torch.autograd.Function):
    """The weighted sum of each token's rows."""

    @staticmethod
    def forward(ctx: Any, results: Tensor, weights: Tensor, order: _Order) -> Tensor:
        ctx.save_for_backward(results, weights)
        ctx.order = order
        total = order.of_choice(results, 0) * weights[:, :1]
        for number in range(1, order.per_token):
            total.addcmul_(order.of_choice(results, number), weights[:, number : number + 1])
        return total.to(results.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        results, weights = ctx.saved_tensors
        order: _Order = ctx.order
        of_results = gradient[order.tokens] * weights.flatten()[order.choices][:, None]
        of_weights = torch.empty_like(weights)
        for number in range(order.per_token):
            of_weights[:, number] = (gradient.to(weights.dtype) * order.of_choice(results, number)).sum(dim=-1)
        return of_results.to(results.dtype), of_weights, None
