"""Carries out the rounds of a program on point-to-point messages of torch.distributed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.bench.algorithms import LIBRARY, Operation, Topology, program, segments_for
from stoker.bench.rounds import Message, Program, Round

_MOST_UNDER_WAY = 2
"""Rounds at a time: while one arrives, what the one before brought is added."""


def all_reduce(x: Tensor, name: str, topology: Topology, group: dist.ProcessGroup) -> Tensor:
    """Sum `x` over the ranks of `group` in place by the algorithm `name`; every rank gets the same bits.

    Of any length and any type that can be added; additions are in the type of `x`, in an order that depends on
    nothing but place, length and type. An `x` that is not contiguous is worked on as a copy. Returns `x`.
    """
    return run("all_reduce", x, name, topology, group)


def run(operation: Operation, x: Tensor, name: str, topology: Topology, group: dist.ProcessGroup) -> Tensor:
    """Carry out one of this project's algorithms on the buffer `x`, in place; see `algorithms`. Returns `x`.

    Raises `ValueError` for the library's, and where `topology` is not that of `group`.
    """
    if name == LIBRARY or topology.ranks != group.size():
        raise ValueError(f"{name} of {topology} cannot be carried out over {group.size()} ranks")
    flat = x.contiguous().view(-1)
    segments = segments_for(name, topology.ranks, flat.numel() * flat.element_size())
    carry_out(program(operation, name, group.rank(), topology, flat.numel(), segments), flat, group)
    if flat.data_ptr() != x.data_ptr():
        x.copy_(flat.view_as(x))
    return x


def carry_out(rounds: Program, flat: Tensor, group: dist.ProcessGroup) -> None:
    """Go through `rounds` with the buffer `flat`, two at a time where neither needs the other."""
    scratch = _Scratch(flat)
    under_way: deque[_Begun] = deque()
    for one in rounds:
        if not one.sends and not one.receives:
            continue
        while under_way and (
            len(under_way) >= _MOST_UNDER_WAY or any(_clash(before.of, one) for before in under_way)
        ):
            under_way.popleft().finish(scratch)
        under_way.append(_begin(one, scratch, group))
    while under_way:
        under_way.popleft().finish(scratch)


class _Scratch:
    """A buffer, and memory for what is to be added to it, used again and again."""

    def __init__(self, flat: Tensor) -> None:
        self.flat = flat
        self._free: dict[int, list[Tensor]] = {}

    def take(self, length: int) -> Tensor:
        free = self._free.get(length)
        return free.pop() if free else torch.empty(length, dtype=self.flat.dtype, device=self.flat.device)

    def give_back(self, tensor: Tensor) -> None:
        self._free.setdefault(tensor.numel(), []).append(tensor)


@dataclass
class _Begun:
    of: Round
    works: list[dist.Work]
    arriving: list[tuple[Message, Tensor]]
    """Receives that do not go straight to their place."""

    def finish(self, scratch: _Scratch) -> None:
        for work in self.works:
            work.wait()
        for message, tensor in self.arriving:
            place = scratch.flat[message.first : message.last]
            if message.adds:
                place.add_(tensor)
            else:
                place.copy_(tensor)
            scratch.give_back(tensor)


def _begin(one: Round, scratch: _Scratch, group: dist.ProcessGroup) -> _Begun:
    messages, arriving = [], []
    for message in one.receives:
        target = scratch.flat[message.first : message.last]
        if message.adds or _overlap([message], one.sends):
            target = scratch.take(message.length)
            arriving.append((message, target))
        messages.append(dist.P2POp(dist.irecv, target, group=group, group_peer=message.peer))
    for message in one.sends:
        target = scratch.flat[message.first : message.last]
        messages.append(dist.P2POp(dist.isend, target, group=group, group_peer=message.peer))
    return _Begun(one, dist.batch_isend_irecv(messages), arriving)


def _clash(before: Round, one: Round) -> bool:
    """Whether `one` must wait for `before`: it sends what comes in there, or fills what is in use there."""
    return _overlap(one.sends, before.receives) or _overlap(one.receives, (*before.sends, *before.receives))


def _overlap(some: Iterable[Message], others: Iterable[Message]) -> bool:
    others = tuple(others)
    return any(a.first < b.last and b.first < a.last for a in some for b in others)
