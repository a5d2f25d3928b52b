"""The part of a parameter this rank holds, and sums over the ranks that hold the other parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor; of one that is not sharded, all of it. Shares its memory."""
    if isinstance(tensor, DTensor):
        part: Tensor = tensor.to_local()
        return part
    return tensor


def shard_group(tensor: Tensor) -> dist.ProcessGroup | None:
    """The ranks that together hold one copy of `tensor`; None when this rank holds all of it.

    Only sharding by rows over one dimension of the mesh (FSDP, HSDP) is known here.
    """
    if not isinstance(tensor, DTensor):
        return None
    sharded = [number for number, placement in enumerate(tensor.placements) if not placement.is_replicate()]
    if not sharded:
        return None
    if len(sharded) > 1 or tensor.placements[sharded[0]] != Shard(0):
        raise ValueError(f"a parameter must be sharded by rows over one mesh dimension, not as {tensor.placements}")
    group: dist.ProcessGroup = tensor.device_mesh.get_group(sharded[0])
    return group


def whole(part: Tensor, like: Tensor) -> Tensor:
    """All rows, when `part` is this rank's part of a tensor sharded as `like` is. Collective if it is sharded."""
    if shard_group(like) is None:
        return part
    assert isinstance(like, DTensor)
    sharded = DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    full: Tensor = sharded.full_tensor()
    return full


def own_part(full: Tensor, like: Tensor) -> Tensor:
    """This rank's part of `full`, sharded as `like` is. No communication."""
    if not isinstance(like, DTensor):
        return full
    everywhere = [Replicate()] * like.device_mesh.ndim
    replicated = DTensor.from_local(full, like.device_mesh, everywhere, run_check=False)
    return local(replicated.redistribute(placements=like.placements))


def sum_over_shards(values: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    """Each of `values` summed over the ranks that hold the parts of the parameter in the same place of `like`.

    One collective for each group of ranks, however many values there are. All values have one type.
    """
    summed = list(values)
    groups: dict[dist.ProcessGroup, list[int]] = {}
    for place, parameter in enumerate(like):
        group = shard_group(parameter)
        if group is not None:
            groups.setdefault(group, []).append(place)
    for group, places in groups.items():
        flat = torch.cat([values[place].reshape(-1) for place in places])
        dist.all_reduce(flat, group=group)
        parts = torch.split(flat, [values[place].numel() for place in places])
        for place, part in zip(places, parts, strict=True):
            summed[place] = part.view_as(values[place])
    return summed
