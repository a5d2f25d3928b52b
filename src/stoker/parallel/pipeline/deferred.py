"""Backward passes in two halves: gradients of matrices wait until there is time for them.

What another stage waits for is the gradient of its output, not that of this stage's weights (Qi et al.
2023, arXiv:2401.10241). The backward of every linear layer computes the former at once and puts the
two factors of the latter aside. All other gradients, those of norms, of the embedding and of the head,
are small work or fall out of the first half, and are computed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stoker.parallel.collectives import sum_and_cut
from stoker.parallel.tensor_parallel import RowParallelLinear


class _Factors(NamedTuple):
    """What the gradients of one linear layer's parameters are computed from."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    input: Tensor
    """[tokens, inputs]"""
    gradient: Tensor
    """Of the output: [tokens, outputs]."""

    def of_weight(self) -> Tensor | None:
        """[outputs, inputs]: the product that autograd computes, so that its bits are the same."""
        return None if self.weight is None else self.gradient.T.mm(self.input).to(self.weight.dtype)

    def of_bias(self) -> Tensor | None:
        """[outputs]"""
        return None if self.bias is None else self.gradient.sum(0).to(self.bias.dtype)


class WeightGradients:
    """The weight gradients of one stage that are put off, by micro-batch."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[_Factors]] = {}
        self._putting_off: list[_Factors] | None = None

    def __len__(self) -> int:
        """Micro-batches with weight gradients still to be computed."""
        return len(self._waiting)

    @contextmanager
    def put_off(self, micro_batch: int) -> Iterator[None]:
        """Around the first half of a backward pass. Outside of this backward passes are whole."""
        self._putting_off = self._waiting.setdefault(micro_batch, [])
        try:
            yield
        finally:
            self._putting_off = None

    @torch.no_grad()
    def run(self, micro_batch: int) -> None:
        """The second half: add what was put off to `.grad` of the parameters that the forward pass used."""
        waiting = self._waiting.pop(micro_batch)
        waiting.reverse()
        while waiting:
            factors = waiting.pop()
            _accumulate(factors.weight, factors.of_weight())
            _accumulate(factors.bias, factors.of_bias())

    def forget(self) -> None:
        """Drop whatever is put off."""
        self._waiting.clear()

    def install(self, stage: nn.Module) -> None:
        """Let every linear layer of `stage` put its weight gradients off when asked to."""
        for module in stage.modules():
            if type(module) is nn.Linear:
                module.forward = partial(_linear, self, module)  # type: ignore[method-assign]
            elif isinstance(module, RowParallelLinear):
                module.forward = partial(_row_parallel, self, module)  # type: ignore[method-assign]

    def take(self, factors: _Factors) -> bool:
        """Whether `factors` have been put off, and their gradients are nothing to wait for."""
        if self._putting_off is None:
            return False
        self._putting_off.append(factors)
        return True


def _accumulate(parameter: nn.Parameter | None, gradient: Tensor | None) -> None:
    if parameter is None or gradient is None:
        return
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient


def _linear(later: WeightGradients, linear: nn.Linear, x: Tensor) -> Tensor:
    return _product(x, linear.weight, linear.bias, later)  # type: ignore[no-any-return]


def _row_parallel(later: WeightGradients, linear: RowParallelLinear, x: Tensor) -> Tensor:
    y = sum_and_cut(_product(x, linear.weight, None, later), 1, linear.group)
    return y if linear.bias is None else y + linear.bias.to(y.dtype)


# What is put off is a side effect of backward, which a compiled graph does not have.
@torch.compiler.disable  # type: ignore[untyped-decorator]
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
        of_input, of_weight, of_bias, _ = ctx.needs_input_grad
        rows = gradient.flatten(0, -2)
        back = rows.mm(ctx.weight.to(rows.dtype)).view(x.shape).to(ctx.dtype) if of_input else None
        factors = _Factors(ctx.weight if of_weight else None, ctx.bias if of_bias else None, x.flatten(0, -2), rows)
        if ctx.later.take(factors):
            return back, None, None, None
        return back, factors.of_weight(), factors.of_bias(), None
