"""`dp_replicate`: every rank holds the whole model; gradients are summed over ranks (DDP)."""

# No `from __future__ import annotations`: DDP compares a hook's annotations with its own types.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stoker.parallel.world import World


def _sum_gradients(
    group: dist.ProcessGroup,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Sum instead of DDP's mean: the loss is already divided by the global count of tokens."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]


def replicate(model: nn.Module, world: World) -> DistributedDataParallel:
    """Wrap `model` so that backward sums its gradients over all ranks, overlapped with the computation."""
    assert world.mesh is not None
    group = world.mesh.get_group("dp_replicate")
    wrapped = DistributedDataParallel(
        model,
        device_ids=[world.device] if world.device.type == "cuda" else None,
        process_group=group,
        gradient_as_bucket_view=True,
        init_sync=False,  # initial values are a function of the seed: every rank has them already
    )
    wrapped.register_comm_hook(group, _sum_gradients)
    return wrapped
