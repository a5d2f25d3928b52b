"""One operation at one size by one algorithm: how it is called, and whether what it gives is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.bench.algorithms import LIBRARY, Operation, Topology
from stoker.bench.execution import run
from stoker.bench.rounds import pieces


@dataclass(frozen=True)
class Trial:
    """Ready to be called again and again, by all ranks alike."""

    name: str
    call: Callable[[], None]
    buffer: Tensor
    """What goes in."""
    outcome: Tensor
    """What comes out; may be part of the buffer."""
    expected: Callable[[], Tensor]

    def is_right(self, fill: Callable[[Tensor], None]) -> bool:
        """Call it once on numbers that can be told apart; the buffer is zero afterwards."""
        fill(self.buffer)
        self.call()
        expected = self.expected()
        # Whole numbers; beyond what a narrow type can tell apart, within its rounding.
        tolerance = 0.0 if expected.double().max() < 256 else 2 * torch.finfo(expected.dtype).eps
        right = bool(((self.outcome - expected).abs() <= tolerance * expected).all())
        self.buffer.zero_()
        return right


def elements(operation: Operation, size: int, ranks: int, dtype: torch.dtype) -> int:
    """Elements of a buffer of about `size` bytes: a number that divides where blocks of one length are needed."""
    length = max(1, size // dtype.itemsize)
    return length if operation in ("all_reduce", "p2p") else -(-length // ranks) * ranks


def filling(rank: int) -> Callable[[Tensor], None]:
    """Puts numbers into a buffer that tell ranks and places apart."""

    def fill(x: Tensor) -> None:
        x.copy_(_numbers(len(x), rank, x))

    return fill


def trial(
    operation: Operation, name: str, topology: Topology, length: int, like: Tensor, group: dist.ProcessGroup
) -> Trial:
    """The trial of `name`; `like` says of which type and where buffers are."""
    rank, ranks = group.rank(), group.size()
    x = like.new_zeros(length)
    first, last = pieces((0, length), ranks)[rank]
    everyone = range(ranks)

    def total(span: slice) -> Tensor:
        whole = x.new_zeros(length)
        for other in everyone:
            whole += _numbers(length, other, x)
        return whole[span]

    def gathered() -> Tensor:
        return torch.cat([_numbers(last - first, other, x) for other in everyone])

    def transposed() -> Tensor:
        return torch.cat([_numbers(length, other, x)[first:last] for other in everyone])

    own = x[first:last]
    other_buffer = torch.zeros_like(x) if name == LIBRARY and operation == "all_to_all" else x
    part = torch.zeros_like(own)

    def ours() -> None:
        run(operation, x, name, topology, group)

    def all_reduce() -> None:
        dist.all_reduce(x, group=group)

    def all_gather() -> None:
        dist.all_gather_into_tensor(x, part, group=group)

    def reduce_scatter() -> None:
        dist.reduce_scatter_tensor(part, x, group=group)

    def all_to_all() -> None:
        dist.all_to_all_single(other_buffer, x, group=group)

    def back_and_forth() -> None:
        _back_and_forth(x, rank, ranks, group)

    theirs = name == LIBRARY
    match operation:
        case "all_reduce":
            return Trial(name, all_reduce if theirs else ours, x, x, lambda: total(slice(None)))
        case "all_gather":
            return Trial(name, all_gather if theirs else ours, part if theirs else own, x, gathered)
        case "reduce_scatter":
            outcome = part if theirs else own
            return Trial(name, reduce_scatter if theirs else ours, x, outcome, lambda: total(slice(first, last)))
        case "all_to_all":
            return Trial(name, all_to_all if theirs else ours, x, other_buffer, transposed)
        case "p2p":
            source = 0 if rank in (0, ranks - 1) else rank
            return Trial(name, back_and_forth, x, x, lambda: _numbers(length, source, x))


def _back_and_forth(x: Tensor, rank: int, ranks: int, group: dist.ProcessGroup) -> None:
    """From the first rank to the last and back; the others rest."""
    if rank == 0:
        dist.send(x, group=group, group_dst=ranks - 1)
        dist.recv(x, group=group, group_src=ranks - 1)
    elif rank == ranks - 1:
        dist.recv(x, group=group, group_src=0)
        dist.send(x, group=group, group_dst=0)


def _numbers(length: int, rank: int, like: Tensor) -> Tensor:
    return ((torch.arange(length, device=like.device) + rank) % 3 + rank % 2).to(like.dtype)
