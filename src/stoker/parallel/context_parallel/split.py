"""Which tokens of a sequence a context-parallel rank holds.

The sequence is cut into 2·cp chunks, of which rank i holds i and 2·cp-1-i: an early and a late one, so that
causal attention, in which late tokens see more than early ones, is the same work for every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from stoker.layout.shares import Bounds, chunk
from stoker.model.position import Places
from stoker.parallel import collectives


def own_ranges(length: int, group_size: int, rank: int) -> tuple[Bounds, ...]:
    """The places `rank` holds, as at most two ranges in order, none of them empty and none next to another."""
    early, late = (chunk(length, 2 * group_size, index) for index in (rank, 2 * group_size - 1 - rank))
    ranges = [(early[0], late[1])] if early[1] == late[0] else [early, late]
    return tuple((first, last) for first, last in ranges if first < last)


def own_places(length: int, group_size: int, rank: int) -> Tensor:
    """The places `rank` holds, in order: int64 [own length]."""
    ranges = [torch.arange(first, last) for first, last in own_ranges(length, group_size, rank)]
    return torch.cat(ranges) if ranges else torch.arange(0)


def own_length(length: int, group_size: int, rank: int) -> int:
    """How many places `rank` holds."""
    return sum(last - first for first, last in own_ranges(length, group_size, rank))


def own_part(x: Tensor, dim: int, group_size: int, rank: int) -> Tensor:
    """What `rank` holds of an `x` whose `dim` runs over the whole sequence."""
    ranges = own_ranges(x.shape[dim], group_size, rank)
    parts = [x.narrow(dim, first, last - first) for first, last in ranges]
    return torch.cat(parts, dim) if parts else x.narrow(dim, 0, 0)


def in_order(parts: Sequence[Tensor], dim: int, length: int) -> Tensor:
    """The whole sequence along `dim`, from the parts of all ranks in order of rank."""
    chunks: dict[int, Tensor] = {}
    for rank, part in enumerate(parts):
        start = 0
        for first, last in own_ranges(length, len(parts), rank):
            chunks[first] = part.narrow(dim, start, last - first)
            start += last - first
    return torch.cat([chunks[first] for first in sorted(chunks)], dim)


@dataclass(frozen=True)
class SequenceSplit:
    """The division of sequences over the ranks of `group`."""

    group: dist.ProcessGroup

    def places(self, length: int, device: torch.device) -> Places:
        """Where this rank's tokens stand in sequences of `length`."""
        return Places(own_places(length, self.group.size(), self.group.rank()).to(device), length)

    def sizes(self, length: int) -> list[int]:
        """Tokens that each rank holds of a sequence of `length`."""
        ranks = self.group.size()
        return [own_length(length, ranks, rank) for rank in range(ranks)]

    def cut(self, x: Tensor, dim: int) -> Tensor:
        """This rank's part of an `x` whose `dim` runs over the whole sequence."""
        return own_part(x, dim, self.group.size(), self.group.rank())

    def gather(self, x: Tensor, dim: int, length: int) -> Tensor:
        """The whole sequence in true order, from the parts of all ranks. Backward sums and cuts."""
        sizes = self.sizes(length)
        longest, dim = max(sizes), dim % x.ndim
        padded = F.pad(x, (0, 0) * (x.ndim - 1 - dim) + (0, longest - x.shape[dim]))
        ranked = collectives.gather(padded, dim, longest * len(sizes), self.group)
        parts = [ranked.narrow(dim, rank * longest, size) for rank, size in enumerate(sizes)]
        return in_order(parts, dim, length)
