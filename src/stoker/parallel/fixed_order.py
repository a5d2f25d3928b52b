"""`training.deterministic: across_layouts`: gradients that are the same to the bit however a batch is split.

Addition of floating-point numbers depends on its order. Here the order is a property of the global batch:
its micro-batches, numbered in order of sample, are the leaves of one binary tree (pairwise summation), and
gradients are added along it, whichever ranks computed them. Subtrees that lie on one rank are added
there; each rank then gets the subtrees of all ranks for its own part of the parameters and adds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from stoker.parallel.placement import local
from stoker.parallel.waiting import waiting
from stoker.parallel.world import World

Node = tuple[int, int]
"""Level above the leaves, and place on it: covers the leaves place · 2^level and up."""


class FixedOrder:
    """Adds up the gradients of one step's micro-batches, flat vectors known by a key."""

    def __init__(self, world: World) -> None:
        layout = world.layout
        self._replicate, self._shard = layout.dp_replicate, layout.dp_shard
        self._rank, self._ranks = world.data_parallel_rank, layout.data_parallel_size
        self._all, self._copies = world.along("dp_replicate", "dp_shard"), world.along("dp_replicate")
        self._sums: dict[object, dict[Node, Tensor]] = {}
        self._done, self._count = 0, 1

    def begin(self, done: int, count: int) -> None:
        """Before this rank's micro-batch `done` (from 0) of `count`; all ranks have as many."""
        self._done, self._count = done, count

    @property
    def last(self) -> bool:
        """Whether the micro-batch that goes on is this rank's last of the step."""
        return self._done == self._count - 1

    def add(self, key: object, flat: Tensor) -> None:
        """Take the gradient of the micro-batch that goes on; it is kept, and must not be written to again."""
        nodes = self._sums.setdefault(key, {})
        level, place = 0, self._rank * self._count + self._done
        while (other := nodes.pop((level, place ^ 1), None)) is not None:
            flat = other.add_(flat) if place & 1 else flat.add_(other)
            level, place = level + 1, place >> 1
        nodes[level, place] = flat

    def total(self, key: object) -> Tensor:
        """The sum of all ranks' micro-batches: the part of it that belongs to this rank's shard. Collective."""
        own = self._sums.pop(key)
        flat = next(iter(own.values()))
        part = -(-flat.numel() // self._shard)
        piece = -(-part // self._replicate)
        mine = torch.stack([self._by_owner(own[node], part, piece) for node in sorted(own)], dim=1)
        found: dict[Node, Tensor] = {}
        covers = [list(_cover(r * self._count, (r + 1) * self._count)) for r in range(self._ranks)]
        if self._all is None:
            found = dict(zip(sorted(own), mine[0], strict=True))
        else:
            received = mine.new_empty(sum(map(len, covers)), piece)
            sizes = [len(cover) for cover in covers]
            given = mine.reshape(-1, piece).contiguous()
            with waiting("gradients"):
                dist.all_to_all_single(received, given, sizes, [len(own)] * self._ranks, group=self._all)
            nodes = [node for cover in covers for node in sorted(cover)]
            found = dict(zip(nodes, received, strict=True))
        total = _value(found, self._ranks * self._count)
        total = total.add(0.0)  # a zero is +0 here, as it is where zeros have been added to it
        if self._copies is not None:
            whole = total.new_empty(piece * self._replicate)
            with waiting("gradients"):
                dist.all_gather_into_tensor(whole, total, group=self._copies)
            total = whole
        return total[:part]

    def _by_owner(self, flat: Tensor, part: int, piece: int) -> Tensor:
        """[ranks, piece]: what each data-parallel rank is to add up."""
        by_shard = F.pad(flat, (0, part * self._shard - flat.numel())).view(self._shard, part)
        by_copy = F.pad(by_shard, (0, piece * self._replicate - part)).view(self._shard, self._replicate, piece)
        return by_copy.transpose(0, 1).reshape(self._ranks, piece)


class FixedOrderReduceScatter:
    """What FSDP calls to sum the gradients of one module over its ranks, after every micro-batch."""

    def __init__(self, order: FixedOrder, key: object) -> None:
        self._order, self._key = order, key

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for what goes in and what comes out."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        """Keep the gradients; the sum comes out after the last micro-batch, zeros before."""
        self._order.add(self._key, input_tensor.clone())
        if self._order.last:
            output_tensor.copy_(self._order.total(self._key))
        else:
            output_tensor.zero_()


class FixedOrderGradients:
    """The same for parameters that FSDP does not shard."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], order: FixedOrder, reduce: torch.dtype | None = None
    ) -> None:
        """`reduce` is the type gradients are added in; by default their own."""
        self._parameters, self._order, self._reduce = list(parameters), order, reduce

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Whose gradients are summed."""
        return self._parameters

    def finish(self) -> None:
        """Nothing is left to do."""

    @contextmanager
    def during(self, last: bool) -> Iterator[None]:
        """Around a backward pass, whose gradients are kept apart from those before. Collective."""
        yield
        if not self._parameters:
            return
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]
        flat = torch.cat([local(gradient).reshape(-1) for gradient in gradients])
        self._order.add(self, flat.to(self._reduce or flat.dtype))
        for parameter in self._parameters:
            parameter.grad = None
        if not self._order.last:
            return
        total, place = self._order.total(self), 0
        for parameter in self._parameters:
            parameter.grad = torch.empty_like(parameter)
            local(parameter.grad).view(-1).copy_(total[place : place + parameter.numel()])
            place += parameter.numel()


def in_fixed_order(model: nn.Module, order: FixedOrder) -> None:
    """Let every sharded module of `model` sum its gradients by `order`."""
    for number, module in enumerate(module for module in model.modules() if isinstance(module, FSDPModule)):
        module.set_custom_reduce_scatter(FixedOrderReduceScatter(order, (id(model), number)))  # type: ignore[arg-type]


def _cover(first: int, last: int) -> Iterator[Node]:
    """The largest nodes that cover the leaves `first` … `last` - 1 and no others."""
    while first < last:
        level = (first & -first).bit_length() - 1 if first else (last - first).bit_length() - 1
        while 1 << level > last - first:
            level -= 1
        yield level, first >> level
        first += 1 << level


def _value(found: dict[Node, Tensor], leaves: int) -> Tensor:
    """The root of the tree of `leaves` leaves, from nodes that cover them."""

    def at(level: int, place: int) -> Tensor | None:
        if (level, place) in found:
            return found[level, place]
        if place << level >= leaves:
            return None
        left, right = at(level - 1, 2 * place), at(level - 1, 2 * place + 1)
        assert left is not None
        return left if right is None else left + right

    root = at((leaves - 1).bit_length(), 0)
    assert root is not None
    return root
