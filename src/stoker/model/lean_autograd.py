"""Operations whose backward pass keeps less than autograd would, for models that are not compiled.

Autograd keeps what each single operation needs; these keep a whole formula's inputs and compute the
rest again. The compiler chooses for itself what to keep, and does so better when it sees the plain formula.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Arguments = ParamSpec("Arguments")
Plain = Callable[Arguments, Tensor]


def unless_compiling(lean: type[torch.autograd.Function]) -> Callable[[Plain[Arguments]], Plain[Arguments]]:
    """Decorates a plain formula: `lean` computes the same wherever the formula is not being compiled."""

    def decorate(plain: Plain[Arguments]) -> Plain[Arguments]:
        @wraps(plain)
        def either(*args: Arguments.args, **named: Arguments.kwargs) -> Tensor:
            if torch.compiler.is_compiling():
                return plain(*args, **named)
            result: Tensor = lean.apply(*args, **named)  # type: ignore[no-untyped-call]
            return result

        return either

    return decorate


class _RMSNorm(torch.autograd.Function):
    """Keeps the input as it came, and one number for each of its rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        raised = x.to(_accumulating(weight))
        square_sum = torch.linalg.vector_norm(raised, dim=-1, keepdim=True).square_()
        scale = square_sum.div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        normed: Tensor = (raised * scale).mul_(weight)
        return normed.to(weight.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        compute = scale.dtype
        raised, gradient, gain = x.to(compute), gradient.to(compute), weight.to(compute)
        product, of_weight = gradient * raised, None
        with torch.autocast(x.device.type, enabled=False):
            along = (product @ gain).unsqueeze(-1)  # each row's gradient along the row itself
            if ctx.needs_input_grad[1]:
                of_weight = (product.reshape(-1, len(gain)).T @ scale.view(-1)).to(weight.dtype)
        if not ctx.needs_input_grad[0]:
            return None, of_weight, None
        inward = along.mul_(scale.pow(3)).div_(-x.shape[-1])
        of_x = torch.mul(gradient, gain, out=product).mul_(scale).addcmul_(raised, inward)
        return of_x.to(x.dtype), of_weight, None


@unless_compiling(_RMSNorm)
def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / rms(x) · weight over the last dimension (Zhang & Sennrich 2019), in the dtype of `weight`."""
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, epsilon)


class _Gated(torch.autograd.Function):
    """Keeps gate and up, not the activated gate."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, swish: bool) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.swish = swish
        return _activation(gate, swish).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        of_activation = gradient * up
        if ctx.swish:
            of_gate = torch.ops.aten.silu_backward(of_activation, gate)
        else:
            of_gate = torch.ops.aten.gelu_backward(of_activation, gate, approximate="tanh")
        del of_activation
        return of_gate, _activation(gate, ctx.swish).mul_(gradient), None


@unless_compiling(_Gated)
def gated(gate: Tensor, up: Tensor, swish: bool) -> Tensor:
    """activation(gate) · up, both of one dtype: SwiGLU's product, or GeGLU's with the tanh form of GELU."""
    return _activation(gate, swish) * up


def _activation(gate: Tensor, swish: bool) -> Tensor:
    return F.silu(gate) if swish else F.gelu(gate, approximate="tanh")


class _Rotated(torch.autograd.Function):
    """Keeps the angles alone, which all layers share."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return _turn(x, cosine, sine, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        cosine, sine = ctx.saved_tensors
        return _turn(gradient, cosine, sine, -1), None, None


@unless_compiling(_Rotated)
def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each pair (element k, element k + K/2) of the last dimension turned by its angle; keeps dtype."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(x.dtype)


def _turn(x: Tensor, cosine: Tensor, sine: Tensor, sense: int) -> Tensor:
    raised = x.to(cosine.dtype)
    turned = torch.empty_like(raised)
    (first, second), (new_first, new_second) = raised.chunk(2, dim=-1), turned.chunk(2, dim=-1)
    torch.mul(first, cosine, out=new_first).addcmul_(second, sine, value=-sense)
    torch.mul(second, cosine, out=new_second).addcmul_(first, sine, value=sense)
    return turned.to(x.dtype)


def _accumulating(weight: Tensor) -> torch.dtype:
    return torch.float32 if weight.dtype.itemsize == 2 else weight.dtype
