"""The one door through which a layout reaches a model."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from stoker.parallel.compilation import compile_block
from stoker.parallel.gradients import Gradients
from stoker.parallel.replicate import replicate
from stoker.parallel.shard import shard
from stoker.parallel.world import World

Plain = TypeVar("Plain", bound=nn.Module)


@dataclass(frozen=True)
class ParallelModel(Generic[Plain]):
    """A model laid out over ranks.

    `training` is called for a forward pass that will be followed by backward;
    `plain` is the model with its own names, whose parameters may be sharded, and is what
    evaluation calls and checkpoints save.
    """

    training: nn.Module
    plain: Plain
    world: World
    gradients: Gradients

    @contextmanager
    def accumulating(self, last: bool) -> Iterator[None]:
        """Run one micro-batch's forward and backward; gradients are summed over ranks only after the last."""
        if isinstance(self.training, DistributedDataParallel) and not last:
            with self.training.no_sync():
                yield
            return
        if isinstance(self.training, FSDPModule):
            self.training.set_requires_gradient_sync(last)
        yield


def apply(
    model: Plain, blocks: Collection[nn.Module], world: World, compile_blocks: bool = False
) -> ParallelModel[Plain]:
    """Lay `model` out as `world.layout` says. Parameters keep their names.

    `model` must already be on the device with its initial values (the same on every rank).
    """
    if compile_blocks:
        for block in blocks:
            compile_block(block)
    training: nn.Module = model
    if world.layout.dp_shard > 1:
        shard(model, blocks, world)
    elif world.layout.dp_replicate > 1:
        training = replicate(model, world)
    return ParallelModel(training, model, world, Gradients(dict(model.named_parameters()), world))
