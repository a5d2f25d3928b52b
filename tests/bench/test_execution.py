"""All-reduces over real processes: the library's sums within rounding, integers exact, the same bits everywhere."""

from __future__ import annotations

import datetime

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from stoker.bench.algorithms import Topology, names
from stoker.bench.execution import all_reduce, run
from tests.distributed import run_ranks

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64)
LENGTHS = (0, 1, 3, 67, 40_001)


def _values(rank: int, length: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + length)
    if dtype.is_floating_point:
        return torch.randn(length, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(-(2**40), 2**40, (length,), generator=generator)


def _join(rank: int, ranks: int, store: dist.Store) -> dist.ProcessGroup:
    dist.init_process_group(
        "gloo", rank=rank, world_size=ranks, store=store, timeout=datetime.timedelta(seconds=30)
    )
    group = dist.group.WORLD
    assert group is not None
    return group


def _bits(x: Tensor) -> bytes:
    return x.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _sums(rank: int, ranks: int, store: dist.Store, node_size: int) -> dict[tuple[str, str, int], bytes]:
    group, topology = _join(rank, ranks, store), Topology(ranks, node_size)
    found = {}
    for dtype in DTYPES:
        for length in LENGTHS:
            exact = sum(_values(r, length, dtype).double() for r in range(ranks))
            scale = sum(_values(r, length, dtype).double().abs() for r in range(ranks))
            theirs = _values(rank, length, dtype)
            dist.all_reduce(theirs)
            for name in names("all_reduce", topology):
                ours = all_reduce(_values(rank, length, dtype), name, topology, group)
                again = all_reduce(_values(rank, length, dtype), name, topology, group)
                assert ours.dtype == dtype
                assert _bits(ours) == _bits(again)
                if dtype == torch.int64:
                    assert ours.equal(theirs)
                else:
                    rounding = (ranks - 1) * torch.finfo(dtype).eps * scale + torch.finfo(dtype).tiny
                    assert ((ours.double() - exact).abs() <= rounding).all()
                    assert ((ours.double() - theirs.double()).abs() <= 2 * rounding).all()
                found[name, str(dtype), length] = _bits(ours)
    dist.destroy_process_group()
    return found


@pytest.mark.parametrize(("ranks", "node_size"), [(2, 2), (3, 2), (4, 2), (5, 3), (8, 4)])
def test_sums_are_the_librarys_and_the_same_bits_on_every_rank(ranks: int, node_size: int) -> None:
    results = run_ranks(_sums, ranks, node_size, timeout=200)
    assert all(result == results[0] for result in results)
    if ranks > node_size:
        assert ("hierarchical", "torch.int64", 67) in results[0]


def _awkward(rank: int, ranks: int, store: dist.Store) -> None:
    group, topology = _join(rank, ranks, store), Topology(ranks, ranks)
    for name in names("all_reduce", topology):
        whole = torch.zeros(6, 10)
        view = whole[:, ::2]
        view += rank + 1
        assert all_reduce(view, name, topology, group) is view
        assert whole[:, ::2].eq(ranks * (ranks + 1) / 2).all()
        assert whole[:, 1::2].eq(0).all()
        assert all_reduce(torch.tensor(2.5), name, topology, group).item() == 2.5 * ranks
        assert all_reduce(torch.ones(3, 0), name, topology, group).shape == (3, 0)
        spoiled = torch.ones(5)
        spoiled[2] = float("nan") if rank == 0 else 1.0
        assert all_reduce(spoiled, name, topology, group).isnan().tolist() == [False, False, True, False, False]
    with pytest.raises(ValueError, match="cannot be carried out"):
        all_reduce(torch.ones(3), "ring", Topology(ranks + 1, 1), group)
    with pytest.raises(ValueError, match="cannot be carried out"):
        run("all_reduce", torch.ones(3), "library", topology, group)
    dist.destroy_process_group()


def test_views_scalars_empty_tensors_and_nan() -> None:
    run_ranks(_awkward, 3)


def _long(rank: int, ranks: int, store: dist.Store) -> None:
    """Long enough for several segments, in subgroups."""
    _join(rank, ranks, store)
    group = dist.new_group([0, 1, 3])
    if rank != 2:
        assert isinstance(group, dist.ProcessGroup)
        topology = Topology(3, 2)
        for name in names("all_reduce", topology):
            x = torch.arange(1_500_001, dtype=torch.float64).mul_(group.rank() + 1)
            assert all_reduce(x, name, topology, group).equal(torch.arange(1_500_001, dtype=torch.float64) * 6)
    dist.barrier()
    dist.destroy_process_group()


def test_segments_follow_one_another_within_a_group_of_some_ranks() -> None:
    run_ranks(_long, 4)
