"""Backward passes in two halves: gradients of matrices wait until there is time for them.

What another stage waits for is the gradient of its output, not that of this stage's weights (Qi et al.
2023, arXiv:2401.10241). The backward of every linear layer and of experts computes the former at once
and puts the factors of the latter aside. All other gradients, those of norms, routers, the embedding and
the head, are small work or fall out of the first half, and are computed there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stoker.model.experts import Experts, _GatedExperts, _Groups
from stoker.parallel.tensor_parallel import RowParallelLinear

_Compute = Callable[[], Tensor]


class WeightGradients:
    """The weight gradients of one stage that are put off, by micro-batch."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[tuple[nn.Parameter, _Compute]]] = {}
        self._putting_off: deque[tuple[nn.Parameter, _Compute]] | None = None

    def __len__(self) -> int:
        """Micro-batches with weight gradients still to be computed."""
        return len(self._waiting)

    @contextmanager
    def put_off(self, micro_batch: int) -> Iterator[None]:
        """Around the first half of a backward pass. Outside of this backward passes are whole."""
        self._putting_off = self._waiting.setdefault(micro_batch, deque())
        try:
            yield
        finally:
            self._putting_off = None

    @torch.no_grad()
    def run(self, micro_batch: int) -> None:
        """The second half: add what was put off to `.grad` of the parameters that the forward pass used."""
        waiting = self._waiting.pop(micro_batch)
        while waiting:
            parameter, compute = waiting.popleft()
            if parameter.grad is None:
                parameter.grad = compute()
            else:
                parameter.grad += compute()

    def forget(self) -> None:
        """Drop whatever is put off."""
        self._waiting.clear()

    def install(self, stage: nn.Module) -> None:
        """Let every linear layer and all experts of `stage` put their gradients off when asked to."""
        # What is put off is a side effect of backward, which a compiled graph does not have.
        product = torch.compiler.disable(_product)  # type: ignore[no-untyped-call]
        for module in stage.modules():
            if type(module) is nn.Linear:
                module.forward = partial(_linear, self, product, module)  # type: ignore[method-assign]
            elif isinstance(module, RowParallelLinear):
                module.forward = partial(_row_parallel, self, product, module)  # type: ignore[method-assign]
            elif isinstance(module, Experts):
                module.forward = partial(_experts, self, module)  # type: ignore[method-assign]

    def gradient(self, parameter: nn.Parameter, compute: _Compute) -> Tensor | None:
        """What `compute` gives, which is the gradient of `parameter`; None if that is put off."""
        if self._putting_off is None:
            return compute()
        self._putting_off.append((parameter, compute))
        return None


def _linear(later: WeightGradients, product: Callable[..., Tensor], linear: nn.Linear, x: Tensor) -> Tensor:
    return product(x, linear.weight, linear.bias, later)


def _row_parallel(
    later: WeightGradients, product: Callable[..., Tensor], linear: RowParallelLinear, x: Tensor
) -> Tensor:
    return linear.finished(product(x, linear.weight, None, later))


def _experts(later: WeightGradients, experts: Experts, rows: Tensor, counts: Tensor) -> Tensor:
    compute, device = rows.dtype, rows.device.type
    if torch.is_autocast_enabled(device) and compute != torch.float64:
        compute = torch.get_autocast_dtype(device)
    return _GatedExpertsLater.apply(  # type: ignore[no-any-return, no-untyped-call]
        rows.to(compute), experts.gate, experts.up, experts.down, counts, experts.swish, later
    )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, later: WeightGradients) -> Tensor:
    return _Product.apply(x, weight, bias, later)  # type: ignore[no-any-return, no-untyped-call]


class _Product(torch.autograd.Function):
    """`F.linear`, with the casts that autocast makes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, later: WeightGradients) -> Tensor:
        # The parameters are no saved tensors: FSDP frees and gathers what they point to, and what is
        # cast of them would be held for every micro-batch in flight.
        ctx.weight, ctx.bias, ctx.later, ctx.dtype = weight, bias, later, x.dtype
        if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
            compute = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(compute), weight.to(compute)
            bias = None if bias is None else bias.to(compute)
        ctx.save_for_backward(x)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        weight, bias, later = ctx.weight, ctx.bias, ctx.later
        of_input, of_weight, of_bias, _ = ctx.needs_input_grad
        rows, x_rows = gradient.flatten(0, -2), x.flatten(0, -2)
        return (
            rows.mm(weight.to(rows.dtype)).view(x.shape).to(ctx.dtype) if of_input else None,
            later.gradient(weight, partial(_outer, rows, x_rows, weight.dtype)) if of_weight else None,
            later.gradient(bias, partial(_sum, rows, bias.dtype)) if of_bias else None,
            None,
        )


def _outer(gradient: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """[tokens, outputs] and [tokens, inputs] to [outputs, inputs]: autograd's own product, to the bit."""
    return gradient.T.mm(x).to(dtype)


def _sum(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    return gradient.sum(0).to(dtype)


class _GatedExpertsLater(_GatedExperts):
    """The same, but for the last step of each weight's gradient."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *given, later = args
        result = _GatedExperts.forward(ctx, *given)
        _, *weights, _, _ = given
        ctx.groups = _GroupsLater(ctx.groups, weights, later)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *_GatedExperts.backward(ctx, *gradients), None


class _GroupsLater:
    """Products of groups of rows, of which those that are weight gradients may be put off."""

    def __init__(self, groups: _Groups, weights: list[nn.Parameter], later: WeightGradients) -> None:
        self.times, self._outer = groups.times, groups.outer
        self._weights = {weight.untyped_storage()._cdata: weight for weight in weights}
        self._later = later

    def outer(self, x: Tensor, y: Tensor, like: Tensor) -> Tensor | None:
        """Of each group's rows the sum of x y^T, the gradient of the parameter `like`."""
        weight = self._weights[like.untyped_storage()._cdata]
        if not weight.requires_grad:
            return None
        return self._later.gradient(weight, partial(self._outer, x, y, weight))
