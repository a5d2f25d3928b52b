"""What needs a parameter whole: puts it together from the parts, and adds up what was computed of parts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from stoker.parallel.collectives import all_reduce
from stoker.parallel.placement import Held
from stoker.parallel.waiting import waiting


def gathered(part: Tensor, held: Held, dims: Collection[int] | None = None) -> Tensor:
    """All elements along `dims` (default: all dimensions), when `part` is this rank's part of a tensor like `held`.

    Collective when it is divided.
    """
    wanted = range(len(held.shape)) if dims is None else dims
    parameter, placement = held.tensor, held.placement
    if isinstance(parameter, DTensor) and 0 in wanted:
        shape = torch.Size(placement.local_shape)
        sharded = DTensor.from_local(
            part,
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )
        with waiting("layers"):
            part = sharded.full_tensor()
    for cut in placement.cuts:
        if cut.dim not in wanted:
            continue
        first, last = placement.box[cut.dim]
        shape = torch.Size((*part.shape[: cut.dim], placement.shape[cut.dim], *part.shape[cut.dim + 1 :]))
        full = part.new_zeros(shape)
        if placement.speaks:
            full.narrow(cut.dim, first, last - first).copy_(part)
        part = all_reduce(full, cut.group)
    return part


def own_part(full: Tensor, held: Held, dims: Collection[int] | None = None) -> Tensor:
    """This rank's part along `dims` (default: all) of a tensor that is whole along them. No communication."""
    for dim in range(full.ndim) if dims is None else dims:
        first, last = held.box[dim]
        full = full.narrow(dim, first, last - first)
    return full


def sum_over_parts(values: Sequence[Tensor], held: Sequence[Held], dims: Sequence[Collection[int]]) -> list[Tensor]:
    """Each of `values` summed over the ranks that hold other parts, along its `dims`, of its parameter.

    One collective for each group of ranks, however many values there are, and one for each embedding: pipeline
    stages may hold the same one, and a sum is only rounded alike at the same place of a buffer of the same
    length. All values have one type.
    """
    summed = [
        torch.zeros_like(value) if _is_repeated(one, along) else value
        for value, one, along in zip(values, held, dims, strict=True)
    ]
    rounds: list[dict[tuple[dist.ProcessGroup, int | None], list[int]]] = []
    for place, (one, along) in enumerate(zip(held, dims, strict=True)):
        for number, group in enumerate(_groups(one, along)):
            if number == len(rounds):
                rounds.append({})
            alone = place if one.name == "embedding.weight" else None
            rounds[number].setdefault((group, alone), []).append(place)
    for groups in rounds:
        for (group, _), places in groups.items():
            flat = all_reduce(torch.cat([summed[place].reshape(-1) for place in places]), group)
            parts = torch.split(flat, [values[place].numel() for place in places])
            for place, part in zip(places, parts, strict=True):
                summed[place] = part.view_as(values[place])
    return summed


def _is_repeated(held: Held, dims: Collection[int]) -> bool:
    """Whether another rank among those that are summed over has the same part, and counts for it."""
    return not held.placement.speaks and any(cut.dim in dims for cut in held.placement.cuts)


def _groups(held: Held, dims: Collection[int]) -> list[dist.ProcessGroup]:
    groups = [cut.group for cut in held.placement.cuts if cut.dim in dims]
    parameter = held.tensor
    if isinstance(parameter, DTensor) and 0 in dims:
        mesh = parameter.device_mesh
        groups.append(mesh.get_group(mesh.ndim - 1))
    return groups
