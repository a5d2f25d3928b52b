"""Weights that are moved a little for as long as a forward pass takes, and are the same bits afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from stoker.parallel.alone import leaves, sharded
from stoker.parallel.parallel_model import ParallelModel


@contextmanager
def nudged(model: ParallelModel, directions: Mapping[int, Tensor], distance: float) -> Iterator[None]:
    """Add `distance` times its direction to each of this rank's leaves, by their places in `leaves`.

    For forward passes without gradients. What FSDP gathers is moved each time that it has been gathered, so its
    shards never are; other weights are put back. Each rank moves what it computes with, and no other rank's.
    """
    own = leaves(model)
    moves = {id(own[place]): direction for place, direction in directions.items()}
    gathered = _gathered(model)
    plain = [leaf for leaf in own if id(leaf) in moves and id(leaf) not in gathered]
    before = [leaf.detach().clone() for leaf in plain]
    handles = [
        module.register_forward_pre_hook(_Move(whole, moves, distance))
        for module, whole in _by_module(model)
        if any(id(leaf) in moves for leaf in whole)
    ]
    try:
        for leaf in plain:
            _move(leaf, moves[id(leaf)], distance)
        yield
    finally:
        with torch.no_grad():
            for leaf, kept in zip(plain, before, strict=True):
                leaf.copy_(kept)
        for handle in handles:
            handle.remove()


class _Move:
    """Moves a module's weights once FSDP has gathered them."""

    def __init__(self, whole: list[Tensor], moves: Mapping[int, Tensor], distance: float) -> None:
        self._whole, self._moves, self._distance = whole, moves, distance

    def __call__(self, module: nn.Module, inputs: object) -> None:
        for leaf in self._whole:
            if id(leaf) in self._moves:
                _move(leaf, self._moves[id(leaf)], self._distance)


@torch.no_grad()
def _move(leaf: Tensor, direction: Tensor, distance: float) -> None:
    leaf.copy_(leaf.double() + distance * direction.to(leaf.device, torch.float64))


def _by_module(model: ParallelModel) -> list[tuple[nn.Module, list[Tensor]]]:
    """Each module that FSDP gathers for, and what it gathers."""
    every = [module for stage in model.stages.values() for module in stage.part.modules()]
    return [
        (module, [one._unsharded_param for one in sharded([module]) if hasattr(one, "_unsharded_param")])
        for module in every
        if isinstance(module, FSDPModule)
    ]


def _gathered(model: ParallelModel) -> set[int]:
    return {id(leaf) for _, whole in _by_module(model) for leaf in whole}
