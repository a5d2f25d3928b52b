"""`dp_shard`: parameters, gradients and optimizer state are sharded over ranks (FSDP2).

With `dp_replicate` above one as well this is HSDP: sharded within a copy, summed over copies. Ranks of
`cp` take part in the sharding: they see other tokens and would otherwise hold the same parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

from stoker.parallel.fixed_order import FixedOrder, in_fixed_order
from stoker.parallel.waiting import waiting
from stoker.parallel.world import World


class _TimedAllGather(DefaultAllGather):
    """FSDP's own, seen by `waiting`."""

    def __call__(self, *args: Any, **named: Any) -> dist.Work | None:
        with waiting("weights"):
            return super().__call__(*args, **named)


class _TimedReduceScatter(DefaultReduceScatter):
    """FSDP's own, seen by `waiting`."""

    def __call__(self, *args: Any, **named: Any) -> dist.Work:
        with waiting("gradients"):
            return super().__call__(*args, **named)


class Sharding:
    """FSDP2 over one part of the model, and when it gathers and reduces."""

    def __init__(self, model: nn.Module, world: World, order: FixedOrder | None) -> None:
        self._always_sum = order is not None and world.layout.dp_shard > 1
        self._modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
        if world.device.type == "cpu":  # elsewhere the host does not wait
            for module in self._modules:
                module.set_custom_all_gather(_TimedAllGather())
                module.set_custom_reduce_scatter(_TimedReduceScatter())
        if order is not None and self._always_sum:
            in_fixed_order(model, order)
        self._stage = world.layout.zero_stage
        for module in self._modules:
            # The loss is already divided by the global count of tokens: gradients are summed.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)

    def begin_pass(self, last: bool, later: bool = False) -> None:
        """Before a micro-batch; `last` says that gradients are complete after it.

        `later` says that weight gradients come after the backward pass: then nothing is summed in it.
        """
        for module in self._modules:
            module.set_requires_gradient_sync(self._sums(last, later), recurse=False)
            # Until then, what a copy of the model has summed stays with it, sharded.
            module.set_requires_all_reduce(last and not later, recurse=False)
            module.set_reshard_after_backward(self._stage == 3 or (last and not later), recurse=False)

    def _sums(self, last: bool, later: bool) -> bool:
        return not later and (last or self._stage > 1 or self._always_sum)

    def reduce(self) -> None:
        """Sum what gradients there are that no backward pass has summed, and gather no longer.

        For gradients that are computed outside of backward passes. Collective.
        """
        self.begin_pass(last=True)
        for module in self._modules:
            for group in module._get_fsdp_state()._fsdp_param_groups:
                for parameter in group.fsdp_params:  # some have been cast for the sum already, others not
                    if hasattr(parameter, "_unsharded_param"):
                        parameter.accumulate_unsharded_grad_if_needed()
                        parameter.to_accumulated_grad_if_needed()
                group.post_backward()
        # The model itself comes first. What it waits for are the sums of all its modules.
        self._modules[0]._get_fsdp_state()._root_post_backward_final_callback()

    def free(self) -> None:
        """Let go of whole weights."""
        for module in self._modules:
            module.reshard()


def shard(
    model: nn.Module,
    blocks: Iterable[nn.Module],
    world: World,
    reduce: torch.dtype | None,
    order: FixedOrder | None = None,
    offload: bool = False,
) -> Sharding | None:
    """Shard each of `blocks`, then what is left of `model`, in place; None when nothing is to be sharded.

    Experts are sharded over the ranks that hold the same ones. Weights are gathered in their own
    precision and autocast inside the module, so that a sharded run computes what a replicated one
    does, to the bit of every cast. `reduce` is the type gradients are summed in (default: their own),
    `order` the order they are summed in where that must not depend on the layout.

    With `offload` parameters and gradients rest in host memory, in one shard where they are not divided. FSDP
    brings those of a block to the device while the block before it computes; in one shard, when they are needed.
    """
    mesh = world.sharding_mesh(copies_apart=order is not None, also_whole=offload)
    if mesh is None:
        return None
    expert_mesh = world.sharding_mesh(experts=True, also_whole=offload)
    divide = partial(
        fully_shard,
        mp_policy=MixedPrecisionPolicy(reduce_dtype=reduce),
        offload_policy=CPUOffloadPolicy(pin_memory=world.device.type == "cuda") if offload else OffloadPolicy(),
    )
    free = world.layout.zero_stage == 3
    whole_experts: set[nn.Parameter] = set()
    for block in blocks:
        for module in experts_of(block):
            if expert_mesh is None:
                whole_experts.update(module.parameters())
            else:
                divide(module, mesh=expert_mesh, reshard_after_forward=free)
        divide(block, mesh=mesh, reshard_after_forward=free, ignored_params=whole_experts)
    divide(model, mesh=mesh, reshard_after_forward=False, ignored_params=whole_experts)
    return Sharding(model, world, order)


def experts_of(block: nn.Module) -> list[nn.Module]:
    """The modules of `block` whose parameters are divided over expert-parallel ranks."""
    return [module for name, module in block.named_modules() if name.rpartition(".")[2] == "experts"]
