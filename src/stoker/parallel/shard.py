"""`dp_shard`: parameters, gradients and optimizer state are sharded over ranks (FSDP2).

With `dp_replicate` above one as well this is HSDP: sharded within a copy, summed over copies.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from stoker.parallel.world import World


def shard(model: nn.Module, blocks: Iterable[nn.Module], world: World) -> None:
    """Shard each of `blocks`, then what is left of `model`, in place.

    Weights are gathered in their own precision and autocast inside the module, so that a
    sharded run computes what a replicated one does, to the bit of every cast.
    """
    assert world.mesh is not None
    mesh = world.mesh if world.layout.dp_replicate > 1 else world.mesh["dp_shard"]
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is already divided by the global count of tokens: gradients are summed.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    # Generation asks for the last token's logits only, through another door than forward.
    if hasattr(model, "last_logits"):
        register_fsdp_forward_method(model, "last_logits")
