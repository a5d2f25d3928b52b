"""The processes of a run: who this one is, on which device, and how they are arranged."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from stoker.errors import BadInput
from stoker.layout import Layout


@dataclass(frozen=True)
class World:
    """One rank's view of all ranks. With one process there is no process group and no mesh."""

    rank: int
    layout: Layout
    device: torch.device
    mesh: DeviceMesh | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes what is written once."""
        return self.rank == 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum `tensor` over all data-parallel ranks, in place; every rank gets the same bits."""
        if self.mesh is not None:
            dist.all_reduce(tensor)
        return tensor

    def sum_over_shards(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum `tensor` over the ranks that share one sharded copy of the model, in place."""
        if self.mesh is not None and self.layout.dp_shard > 1:
            dist.all_reduce(tensor, group=self.mesh.get_group("dp_shard"))
        return tensor

    def agree(self, number: int) -> int:
        """Rank 0's `number`, on every rank."""
        agreed = torch.tensor(number, dtype=torch.int64, device=self.device)
        if self.mesh is not None:
            dist.broadcast(agreed, src=0)
        return int(agreed)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.mesh is not None:
            dist.barrier()


def choose_device(wanted: str, local_rank: int) -> torch.device:
    """The device of one rank. Raises `BadInput` when CUDA is asked for and absent."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise BadInput("training.device is cuda, but torch sees no CUDA device here; use cpu or auto")
    if local_rank >= torch.cuda.device_count():
        raise BadInput(
            f"this machine has {torch.cuda.device_count()} CUDA devices, but local rank {local_rank} "
            "needs one of its own; start fewer ranks on it"
        )
    return torch.device("cuda", local_rank)


def single_process_world(device: torch.device) -> World:
    """The world of a run on one process."""
    return World(rank=0, layout=Layout(), device=device)


@contextmanager
def join_world(
    layout: Layout,
    rank: int,
    device: torch.device,
    store: dist.Store | None,  # type: ignore[name-defined]
    timeout_seconds: float,
) -> Iterator[World]:
    """Join the process group of `layout.world_size` ranks, and leave it when the block ends.

    `store` is where the ranks meet; without one the `MASTER_ADDR` and `MASTER_PORT` that a
    launcher such as torchrun sets are used. A collective that takes longer than
    `timeout_seconds` raises.
    """
    if layout.world_size == 1:
        yield single_process_world(device)
        return
    if store is None and "MASTER_ADDR" not in os.environ:
        raise BadInput("WORLD_SIZE is set but MASTER_ADDR is not; start the ranks with torchrun or `stoker train`")
    dist.init_process_group(
        backend="nccl" if device.type == "cuda" else "gloo",
        init_method=None if store is not None else "env://",
        store=store,
        rank=rank,
        world_size=layout.world_size,
        timeout=datetime.timedelta(seconds=timeout_seconds),
        device_id=device if device.type == "cuda" else None,
    )
    try:
        mesh = init_device_mesh(
            device.type, (layout.dp_replicate, layout.dp_shard), mesh_dim_names=("dp_replicate", "dp_shard")
        )
        yield World(rank=rank, layout=layout, device=device, mesh=mesh)
    finally:
        dist.destroy_process_group()
