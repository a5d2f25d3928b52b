"""Collectives on plain tensors that autograd can differentiate and torch.compile can trace.

Each takes a process group, or None where one rank is alone: then nothing is sent. Dimensions that do not
divide are cut by the rule of `stoker.layout.shares.chunk`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from stoker.layout.shares import chunk
from stoker.parallel.waiting import waiting

Group = dist.ProcessGroup | None
_ops = torch.ops._c10d_functional


def gather(x: Tensor, dim: int, length: int, group: Group) -> Tensor:
    """The parts of all ranks, one after another along `dim`, `length` in all. Backward sums and cuts."""
    return x if group is None else _Gather.apply(x, dim, length, group)  # type: ignore[no-untyped-call]


def sum_and_cut(x: Tensor, dim: int, group: Group) -> Tensor:
    """The sum of all ranks' `x`, of which each keeps its own part of `dim`. Backward gathers."""
    return x if group is None else _SumAndCut.apply(x, dim, group)  # type: ignore[no-untyped-call]


def cut(x: Tensor, dim: int, group: Group) -> Tensor:
    """This rank's own part of `dim` of an `x` that is the same on all ranks. Backward gathers."""
    return x if group is None else _Cut.apply(x, dim, group)  # type: ignore[no-untyped-call]


def sum_in_forward(x: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' `x`; the gradient, which must be the same on all ranks, passes as it is."""
    return x if group is None else _SumInForward.apply(x, group)  # type: ignore[no-untyped-call]


def sum_in_backward(x: Tensor, group: Group) -> Tensor:
    """`x` as it is, the same on all ranks; gradients are summed over them."""
    return x if group is None else _SumInBackward.apply(x, group)  # type: ignore[no-untyped-call]


def sum_both_ways(x: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' `x`, each of which goes on to use it for a part of its own."""
    return sum_in_backward(sum_in_forward(x, group), group)


def exchange(x: Tensor, send: Sequence[int], receive: Sequence[int], group: Group) -> Tensor:
    """All-to-all of rows: `send[r]` rows of `x` go to rank r, `receive[r]` come from it; backward sends back."""
    if group is None:
        return x
    return _Exchange.apply(x, list(send), list(receive), group)  # type: ignore[no-any-return, no-untyped-call]


def all_reduce(x: Tensor, group: Group, op: str = "sum") -> Tensor:
    """`x` reduced over all ranks (`sum`, `max`), as a new tensor; autograd does not see it."""
    if group is None:
        return x
    return _wait(_ops.all_reduce(x.detach().contiguous(), op, group.group_name))


def _wait(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return _ops.wait_tensor(x)  # type: ignore[no-any-return]
    with waiting("layers"):
        return _ops.wait_tensor(x)  # type: ignore[no-any-return]


def _gather(x: Tensor, dim: int, length: int, group: dist.ProcessGroup) -> Tensor:
    ranks = group.size()
    size = -(-length // ranks)
    rows = _padded(x.movedim(dim, 0), size)
    whole = _wait(_ops.all_gather_into_tensor(rows, ranks, group.group_name))
    # In order: each product of a transposed view would make, and keep, a copy of its own.
    return whole[:length].movedim(0, dim).contiguous()


def _sum_and_cut(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    ranks, length = group.size(), x.shape[dim]
    size = -(-length // ranks)
    rows = _padded(x.movedim(dim, 0), size * ranks)
    own = _wait(_ops.reduce_scatter_tensor(rows, "sum", ranks, group.group_name))
    first, last = chunk(length, ranks, group.rank())
    return own[: last - first].movedim(0, dim)


def _cut(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    first, last = chunk(x.shape[dim], group.size(), group.rank())
    return x.narrow(dim, first, last - first)


def _padded(rows: Tensor, length: int) -> Tensor:
    missing = length - rows.shape[0]
    if missing:
        rows = F.pad(rows, (0, 0) * (rows.ndim - 1) + (0, missing))
    return rows.contiguous()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, length: int, group: dist.ProcessGroup) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _gather(x, dim, length, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _sum_and_cut(gradient, ctx.dim, ctx.group), None, None, None


class _SumAndCut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
        ctx.dim, ctx.group, ctx.length = dim, group, x.shape[dim]
        return _sum_and_cut(x, dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _gather(gradient, ctx.dim, ctx.length, ctx.group), None, None


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
        ctx.dim, ctx.group, ctx.length = dim, group, x.shape[dim]
        return _cut(x, dim, group).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _gather(gradient, ctx.dim, ctx.length, ctx.group), None, None


class _SumInForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        return _wait(_ops.all_reduce(x.contiguous(), "sum", group.group_name))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, None


class _SumInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _wait(_ops.all_reduce(gradient.contiguous(), "sum", ctx.group.group_name)), None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.send, ctx.receive, ctx.group = send, receive, group
        return _wait(_ops.all_to_all_single(x.contiguous(), receive, send, group.group_name))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        back = _wait(_ops.all_to_all_single(gradient.contiguous(), ctx.send, ctx.receive, ctx.group.group_name))
        return back, None, None, None


def start_exchange(x: Tensor, send: Sequence[int], receive: Sequence[int], group_name: str) -> Tensor:
    """`exchange`, begun but not waited for (see `arrived`) and not seen by autograd."""
    return _ops.all_to_all_single(x.contiguous(), list(receive), list(send), group_name)  # type: ignore[no-any-return]


def arrived(x: Tensor) -> Tensor:
    """What a begun exchange brings, once it is here."""
    return _wait(x)
