"""The processes of a run: who this one is, on which device, and how they are arranged."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from stoker.errors import BadInput
from stoker.layout import Coordinate, Layout
from stoker.layout.ranks import Ranks, along, among_experts, replicas, shards


@dataclass(frozen=True)
class World:
    """One rank's view of all ranks. With one process there is no process group."""

    rank: int
    layout: Layout
    device: torch.device
    timeout: datetime.timedelta = datetime.timedelta(minutes=10)
    _groups: dict[Ranks, dist.ProcessGroup] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes what is written once."""
        return self.rank == 0

    @property
    def coordinate(self) -> Coordinate:
        """Where this rank stands on each dimension of the layout."""
        return self.layout.coordinate(self.rank)

    @property
    def data_parallel_rank(self) -> int:
        """Which part of the batch this rank has."""
        return self.layout.data_parallel_rank(self.rank)

    def group(self, ranks: Ranks) -> dist.ProcessGroup | None:
        """The process group of `ranks`, this one among them; None when it is alone.

        Made at the first call: all of `ranks` must ask for the same groups in the same order.
        """
        if len(ranks) == 1:
            return None
        if len(ranks) == self.layout.world_size:
            return dist.group.WORLD
        if ranks not in self._groups:
            self._groups[ranks] = dist.new_group(list(ranks), timeout=self.timeout, use_local_synchronization=True)
        return self._groups[ranks]

    def along(self, *dimensions: str) -> dist.ProcessGroup | None:
        """The group of the ranks that differ from this one in nothing but `dimensions`."""
        return self.group(along(self.layout, self.rank, *dimensions))

    def among_experts(self, *dimensions: str) -> dist.ProcessGroup | None:
        """The group of the ranks that differ from this one in nothing but the experts' `dimensions`."""
        return self.group(among_experts(self.layout, self.rank, *dimensions))

    @property
    def replicas(self) -> dist.ProcessGroup | None:
        """The ranks that hold the same parameters and see other tokens."""
        return self.group(replicas(self.layout, self.rank))

    def sharding_mesh(self, experts: bool = False, copies_apart: bool = False) -> DeviceMesh | None:
        """The mesh that parameters are sharded over: [copies, shards] or [shards]; None when they are not.

        `copies_apart` leaves copies out: FSDP then sums gradients over shards only.
        """
        if experts:
            copies, parts = (among_experts(self.layout, self.rank, name) for name in ("replicate", "shard"))
            both = among_experts(self.layout, self.rank, "replicate", "shard")
        else:
            copies, parts = replicas(self.layout, self.rank), shards(self.layout, self.rank)
            both = along(self.layout, self.rank, "dp_replicate", "dp_shard", "cp")
        if self.layout.dp_shard == 1:
            return None
        device, part_group = self.device.type, self.group(parts)
        if part_group is None:  # as many expert-parallel ranks as there are to shard over
            return None
        if len(copies) == 1 or copies_apart:
            return DeviceMesh.from_group(part_group, device, mesh_dim_names=("shard",))
        copy_group = self.group(copies)
        assert copy_group is not None
        ranks = torch.tensor(both).view(len(copies), len(parts))
        return DeviceMesh.from_group(
            [copy_group, part_group], device, mesh=ranks, mesh_dim_names=("replicate", "shard")
        )

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum `tensor` over all ranks, in place; every rank gets the same bits."""
        if self.layout.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, number: int) -> int:
        """Rank 0's `number`, on every rank."""
        agreed = torch.tensor(number, dtype=torch.int64, device=self.device)
        if self.layout.world_size > 1:
            dist.broadcast(agreed, src=0)
        return int(agreed)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.layout.world_size > 1:
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
    timeout = datetime.timedelta(seconds=timeout_seconds)
    dist.init_process_group(
        backend="nccl" if device.type == "cuda" else "gloo",
        init_method=None if store is not None else "env://",
        store=store,
        rank=rank,
        world_size=layout.world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )
    try:
        yield World(rank=rank, layout=layout, device=device, timeout=timeout)
    finally:
        dist.destroy_process_group()
