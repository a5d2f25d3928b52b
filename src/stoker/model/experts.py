"""Many gated feed-forward blocks at once, each over its own rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from stoker.recipe import Model


class Experts(nn.Module):
    """down(activation(gate(x)) * up(x)) with a gate, up and down of each expert, one above the other."""

    def __init__(self, config: Model, experts: int) -> None:
        super().__init__()
        D, inner = config.hidden_size, config.expert_width
        self.gate = nn.Parameter(torch.empty(experts, inner, D))
        self.up = nn.Parameter(torch.empty(experts, inner, D))
        self.down = nn.Parameter(torch.empty(experts, D, inner))
        self.swish = config.activation == "swiglu"

    def forward(self, rows_ND: Tensor, counts_E: Tensor) -> Tensor:
        """[N, D] to [N, D]: the first counts[0] rows by expert 0, the next by expert 1, and so on.

        `counts` int64 [E] sums to N. Products run in the autocast dtype (or that of the rows).
        """
        compute, device = rows_ND.dtype, rows_ND.device.type
        if torch.is_autocast_enabled(device) and compute != torch.float64:
            compute = torch.get_autocast_dtype(device)
        return _GatedExperts.apply(  # type: ignore[no-any-return, no-untyped-call]
            rows_ND.to(compute), self.gate, self.up, self.down, counts_E, self.swish
        )


class _GatedExperts(torch.autograd.Function):
    """Keeps the results of gate and up only; their product is computed again in backward.

    An expert without rows gets a gradient of zeros, so that every rank has a gradient of every parameter.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, gate: Tensor, up: Tensor, down: Tensor, counts: Tensor, swish: bool
    ) -> Tensor:
        groups = _groups(rows, gate, counts)
        with torch.autocast(rows.device.type, enabled=False):
            gates, ups = groups.times(rows, gate.mT), groups.times(rows, up.mT)
            ctx.save_for_backward(rows, gate, up, down, gates, ups)
            ctx.groups, ctx.swish = groups, swish
            return groups.times(_activated(gates, swish).mul_(ups), down.mT)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, gate, up, down, gates, ups = ctx.saved_tensors
        groups: _Groups = ctx.groups
        with torch.autocast(rows.device.type, enabled=False):
            gradient = gradient.to(rows.dtype).contiguous()
            activated = _activated(gates, ctx.swish)
            of_inner = groups.times(gradient, down)
            of_down = groups.outer(gradient, activated * ups, down)
            of_ups = activated.mul_(of_inner)
            of_gates = _activation_gradient(of_inner.mul_(ups), gates, ctx.swish)
            of_rows = groups.times(of_gates, gate).add_(groups.times(of_ups, up))
            return of_rows, groups.outer(of_gates, rows, gate), groups.outer(of_ups, rows, up), of_down, None, None


# One operator, so that recomputation can keep its result by name.
@torch.library.custom_op("stoker::rows_times_experts", mutates_args=())
def _rows_times_experts(x_NI: Tensor, weight_EIO: Tensor, sizes: Sequence[int]) -> Tensor:
    result = x_NI.new_empty(len(x_NI), weight_EIO.shape[-1])
    parts = zip(torch.split(x_NI, list(sizes)), weight_EIO, torch.split(result, list(sizes)), strict=True)
    for x, weight, product in parts:
        if len(x):
            torch.mm(x, weight.to(x.dtype), out=product)
    return result


@register_flop_formula(torch.ops.stoker.rows_times_experts)
def _flops_of_rows(x_shape: Sequence[int], weight_shape: Sequence[int], *_: Any, **__: Any) -> int:
    """For `FlopCounterMode`, which does not look into operators."""
    return 2 * math.prod(x_shape) * weight_shape[-1]


class _Groups:
    """Products over rows that fall into one group for each expert, expert by expert."""

    def __init__(self, counts: Tensor) -> None:
        self._sizes = counts.tolist()

    def times(self, x_NI: Tensor, weight_EIO: Tensor) -> Tensor:
        """Each row times the matrix of its group: [N, O]."""
        return _rows_times_experts(x_NI, weight_EIO, self._sizes)  # type: ignore[no-any-return]

    def outer(self, x_NO: Tensor, y_NI: Tensor, like_EOI: Tensor) -> Tensor:
        """Sum over each group's rows of x y^T, in the shape and dtype of `like`."""
        result = torch.empty_like(like_EOI, memory_format=torch.contiguous_format)
        parts = zip(torch.split(x_NO, self._sizes), torch.split(y_NI, self._sizes), result, strict=True)
        for x, y, product in parts:
            if not len(x):
                product.zero_()
            elif product.dtype == x.dtype:
                torch.mm(x.t(), y, out=product)
            else:
                product.copy_(x.t() @ y)
        return result


class _GroupsInOneKernel(_Groups):
    """The same by kernels that find the groups' sizes on the device, so that nobody waits for them."""

    def __init__(self, counts: Tensor) -> None:
        self._ends = counts.cumsum(0).to(torch.int32)

    def times(self, x_NI: Tensor, weight_EIO: Tensor) -> Tensor:
        """Each row times the matrix of its group: [N, O]."""
        return F.grouped_mm(x_NI, weight_EIO.to(x_NI.dtype), offs=self._ends)

    def outer(self, x_NO: Tensor, y_NI: Tensor, like_EOI: Tensor) -> Tensor:
        """Sum over each group's rows of x y^T, in the shape and dtype of `like`."""
        return F.grouped_mm(x_NO.t(), y_NI, offs=self._ends).to(like_EOI.dtype)


def _groups(rows: Tensor, gate: Tensor, counts: Tensor) -> _Groups:
    aligned = gate.shape[1] % 8 == 0 and gate.shape[2] % 8 == 0  # rows of 16 bytes, which the kernels ask for
    fitting = rows.is_cuda and rows.dtype == torch.bfloat16 and aligned and len(rows) > 0
    if fitting and torch.cuda.get_device_capability(rows.device) >= (8, 0):
        return _GroupsInOneKernel(counts)
    return _Groups(counts)


def _activated(gates: Tensor, swish: bool) -> Tensor:
    return F.silu(gates) if swish else F.gelu(gates, approximate="tanh")


def _activation_gradient(gradient: Tensor, gates: Tensor, swish: bool) -> Tensor:
    if swish:
        return torch.ops.aten.silu_backward(gradient, gates)  # type: ignore[no-any-return]
    return torch.ops.aten.gelu_backward(gradient, gates, approximate="tanh")  # type: ignore[no-any-return]
