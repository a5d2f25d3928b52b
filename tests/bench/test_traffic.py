"""A known sequence of collectives is counted as what it is, wherever it is called from."""

from __future__ import annotations

import datetime

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from stoker.bench.traffic import Call, Traffic
from stoker.parallel import collectives
from tests.distributed import run_ranks


def _join(rank: int, ranks: int, store: dist.Store) -> dist.ProcessGroup:
    dist.init_process_group(
        "gloo", rank=rank, world_size=ranks, store=store, timeout=datetime.timedelta(seconds=30)
    )
    group = dist.group.WORLD
    assert group is not None
    return group


def _sequence(rank: int, ranks: int, store: dist.Store) -> list[Call]:
    _join(rank, ranks, store)
    pair = dist.new_group([0, 1])
    x, parts = torch.ones(12), list(torch.zeros(2, 6).unbind())
    with Traffic() as traffic:
        dist.all_reduce(x)
        dist.all_reduce(x.double(), async_op=True).wait()
        dist.all_gather_into_tensor(torch.empty(36), x)
        dist.all_gather([torch.empty(12) for _ in range(ranks)], x)
        dist.reduce_scatter_tensor(torch.empty(4), x)
        dist.all_to_all_single(torch.empty(12), x)
        sizes = [[1, 2, 3], [2, 2, 2], [3, 2, 1]]
        dist.all_to_all_single(torch.empty(6), x[:6], sizes[rank], sizes[rank])
        dist.broadcast(x, src=1)
        dist.barrier()
        if rank < 2:
            dist.all_reduce(parts[0], group=pair)
        if rank == 0:
            dist.isend(x, 2).wait()
        if rank == 2:
            dist.irecv(x, 0).wait()
    dist.all_reduce(x)  # not counted any more
    dist.destroy_process_group()
    return traffic.calls


def test_functions_of_the_library_are_counted() -> None:
    results = run_ranks(_sequence, 3)
    common = [
        Call("all_reduce", 3, 48, 64),
        Call("all_reduce", 3, 96, 128),
        Call("all_gather", 3, 144, 96),
        Call("all_gather", 3, 144, 96),
        Call("reduce_scatter", 3, 48, 32),
        Call("all_to_all", 3, 48, 32),
    ]
    for rank, calls in enumerate(results):
        assert calls[:6] == common
        assert calls[6] == Call("all_to_all", 3, 24, [20, 16, 20][rank])
        assert calls[7] == Call("broadcast", 3, 48, 32)
    in_pair, message = Call("all_reduce", 2, 24, 24), Call("send", 3, 48, 48)
    assert [calls[8:] for calls in results] == [[in_pair, message], [in_pair], []]


@torch.library.custom_op("stoker_test::sum_over_ranks", mutates_args=())
def _sum_over_ranks(x: Tensor, group: str) -> Tensor:
    return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x, "sum", group)).clone()


def _differentiated(rank: int, ranks: int, store: dist.Store) -> list[Call]:
    group = _join(rank, ranks, store)
    x = torch.ones(5, 2, requires_grad=True)
    with Traffic() as traffic:
        y = collectives.gather(x, 0, 10, group) * 2
        collectives.sum_and_cut(y, 0, group).sum().backward()
        collectives.exchange(x, [2, 3] if rank == 0 else [3, 2], [2, 3] if rank == 0 else [3, 2], group)
        _sum_over_ranks(torch.ones(3), group.group_name)
    dist.destroy_process_group()
    return traffic.calls


def test_functional_collectives_are_counted_forward_and_backward_and_within_custom_operators() -> None:
    for rank, calls in enumerate(run_ranks(_differentiated, 2)):
        assert calls == [
            Call("all_gather", 2, 80, 40),
            Call("reduce_scatter", 2, 80, 40),
            Call("all_gather", 2, 80, 40),
            Call("reduce_scatter", 2, 80, 40),
            Call("all_to_all", 2, 40, [pytest.approx(24), pytest.approx(24)][rank]),
            Call("all_reduce", 2, 12, 12),
        ]


def _sharded(rank: int, ranks: int, store: dist.Store) -> list[Call]:
    _join(rank, ranks, store)
    model = torch.nn.Linear(4, 8, bias=False)
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    with Traffic() as traffic:
        model(torch.ones(1, 4)).sum().backward()
    dist.destroy_process_group()
    return traffic.calls


def test_what_fsdp_does_is_counted() -> None:
    for calls in run_ranks(_sharded, 2):
        assert calls == [Call("all_gather", 2, 128, 64), Call("reduce_scatter", 2, 128, 64)]


def test_a_collective_it_does_not_know_is_not_passed_over() -> None:
    def gather_to_one(rank: int, ranks: int, store: dist.Store) -> None:
        _join(rank, ranks, store)
        x = torch.ones(1)
        with Traffic(), pytest.raises(ValueError, match="does not know"):
            dist.reduce(x, 0)
        dist.barrier()
        dist.destroy_process_group()

    run_ranks(gather_to_one, 2)
