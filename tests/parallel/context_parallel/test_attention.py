"""Attention in parts equals attention of one process, whatever its features, heads, lengths and precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.distributed import run_ranks
from tests.parallel.context_parallel.cases import ALL_METHODS, Case, draw_case, error

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def _group(rank: int, ranks: int, store: Any) -> dist.ProcessGroup:
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def _errors(rank: int, ranks: int, store: Any, cases: list[Case]) -> dict[tuple[str, Case], float]:
    group = _group(rank, ranks, store)
    return {(method, case): error(case, method, group) for case in cases for method in ALL_METHODS}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_equals_one_process(ranks: int) -> None:
    cases = [draw_case(seed, torch.float64) for seed in range(60)]
    cases += [draw_case(seed, torch.float32) for seed in range(60, 80)]
    cases += [draw_case(seed, torch.bfloat16) for seed in range(80, 90)]
    # Each feature by itself and all together, on lengths that divide and that leave ranks with nothing.
    for length in (1, ranks, 2 * ranks + 1, 8 * ranks):
        for features in (
            {},
            {"window": 3},
            {"alibi": True},
            {"softcap": 1.0},
            {"packed": True},
            {"window": 5, "alibi": True, "softcap": 2.0, "packed": True},
        ):
            nothing = {"window": None, "alibi": False, "softcap": None, "packed": False}
            cases.append(draw_case(length, torch.float64, **{**nothing, "length": length, **features}))
    for errors in run_ranks(_errors, ranks, cases):
        for (method, case), value in errors.items():
            assert value <= TOLERANCES[case.dtype], (method, case)
