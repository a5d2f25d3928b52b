"""The processes of a run: who this one is, on which device, and how they are arranged."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

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
    _groups: dict[Ranks, dist.ProcessGroup | None] = field(default_factory=dict, repr=False, compare=False)

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

    def group(self, of: Callable[[int], Ranks]) -> dist.ProcessGroup | None:
        """The process group of this rank's `of(rank)`, which says with whom each rank belongs; None when alone.

        Collective over the whole world, also for ranks that belong with nobody: all make all groups in one
        order, as torch and NCCL want it. Groups that exist already are not made again.
        """
        world = self.layout.world_size
        for ranks in dict.fromkeys(of(rank) for rank in range(world)):
            if 1 < len(ranks) < world and ranks not in self._groups:
                made = dist.new_group(list(ranks), timeout=self.timeout)
                self._groups[ranks] = made if self.rank in ranks else None
        own = of(self.rank)
        if len(own) == 1:
            return None
        return dist.group.WORLD if len(own) == world else self._groups[own]

    def along(self, *dimensions: str) -> dist.ProcessGroup | None:
        """The group of the ranks that differ from this one in nothing but `dimensions`."""
        return self.group(partial(along, self.layout, dimensions=dimensions))

    def among_experts(self, *dimensions: str) -> dist.ProcessGroup | None:
        """The group of the ranks that differ from this one in nothing but the experts' `dimensions`."""
        return self.group(partial(among_experts, self.layout, dimensions=dimensions))

    @property
    def replicas(self) -> dist.ProcessGroup | None:
        """The ranks that hold the same parameters and see other tokens."""
        return self.group(partial(replicas, self.layout))

    def sharding_mesh(
        self, experts: bool = False, copies_apart: bool = False, also_whole: bool = False
    ) -> DeviceMesh | None:
        """The mesh that parameters are sharded over: [copies, shards] or [shards]; None when they are not.

        `copies_apart` leaves copies out: FSDP then sums gradients over shards only. With `also_whole` there is
        a mesh of one shard for parameters that are not sharded.
        """
        if self.layout.dp_shard == 1 and not also_whole:
            return None
        if experts:
            of_copies = partial(among_experts, self.layout, dimensions=("replicate",))
            of_parts = partial(among_experts, self.layout, dimensions=("shard",))
            both = among_experts(self.layout, self.rank, dimensions=("replicate", "shard"))
        else:
            of_copies, of_parts = partial(replicas, self.layout), partial(shards, self.layout)
            both = along(self.layout, self.rank, dimensions=("dp_replicate", "dp_shard", "cp"))
        part_group, copy_group, device = self.group(of_parts), self.group(of_copies), self.device.type
        if part_group is None:
            if not also_whole:  # as many expert-parallel ranks as there are to shard over
                return None
            part_group = self._alone()
        if copy_group is None or copies_apart:
            return DeviceMesh.from_group(part_group, device, mesh_dim_names=("shard",))
        ranks = torch.tensor(both).view(copy_group.size(), part_group.size())
        return DeviceMesh.from_group(
            [copy_group, part_group], device, mesh=ranks, mesh_dim_names=("replicate", "shard")
        )

    def _alone(self) -> dist.ProcessGroup:
        """A group of this rank only."""
        if self.layout.world_size == 1:
            assert dist.group.WORLD is not None
            return dist.group.WORLD
        if (self.rank,) not in self._groups:
            made = dist.new_group([self.rank], timeout=self.timeout, use_local_synchronization=True)
            self._groups[self.rank,] = made
        own = self._groups[self.rank,]
        assert own is not None
        return own

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum `tensor` over all ranks, in place; every rank gets the same bits."""
        if self.layout.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def where(self, holds: bool) -> list[int]:
        """The ranks on which something holds. Collective."""
        flags = torch.zeros(self.layout.world_size, device=self.device)
        flags[self.rank] = float(holds)
        return [int(rank) for rank in self.sum(flags).nonzero().flatten()]

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
    host_tensors: bool = False,
) -> Iterator[World]:
    """Join the process group of `layout.world_size` ranks, and leave it when the block ends.

    `store` is where the ranks meet; without one the `MASTER_ADDR` and `MASTER_PORT` that a
    launcher such as torchrun sets are used. A collective that takes longer than
    `timeout_seconds` raises. `host_tensors` says that parameters rest in host memory, from where they are
    summed too; one process has a group then as well.
    """
    if layout.world_size == 1 and host_tensors:
        store = dist.HashStore()  # type: ignore[attr-defined]
    elif layout.world_size == 1:
        yield single_process_world(device)
        return
    if store is None and "MASTER_ADDR" not in os.environ:
        raise BadInput("WORLD_SIZE is set but MASTER_ADDR is not; start the ranks with torchrun or `stoker train`")
    timeout = datetime.timedelta(seconds=timeout_seconds)
    on_device = "cpu:gloo,cuda:nccl" if host_tensors else "nccl"
    dist.init_process_group(
        backend=on_device if device.type == "cuda" else "gloo",
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
