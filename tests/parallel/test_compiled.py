"""Compiled blocks compute what eager ones do, on every rank of every layout that changes what a block is.

An embedding's output that was still on its way when a compiled block took it lost gradients silently.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

from stoker.layout import Layout
from stoker.parallel import Settings, join_world
from stoker.parallel.compilation import compile_block
from stoker.recipe.memory import OPERATIONS, Recomputation
from tests.distributed import run_ranks
from tests.parallel import parity


def _traced_only(block: nn.Module, share: float) -> None:
    """Traced, made functional and differentiated as for the compiler, then run by torch's own kernels."""
    compile_block(block, share, backend="aot_eager")


def _all(rank: int, ranks: int, store: Any, layout: Layout, case: str, whole: bool) -> list[parity.Outcome]:
    """Eager; compiled; compiled and computed again in backward."""
    torch.set_num_threads(1)
    again = Recomputation(dict.fromkeys(range(4), frozenset(OPERATIONS)))
    ways = [Settings(), Settings(compile_blocks=True), Settings(compile_blocks=True, recompute=again)]
    if not whole:
        sys.modules["stoker.parallel.apply"].compile_block = _traced_only  # type: ignore[attr-defined]
    with join_world(layout, rank, parity.CPU, store, 250) as world:
        return [parity.step(case, world, torch.float32, settings) for settings in ways]


@pytest.mark.slow
@pytest.mark.thorough
def test_tensor_parallel_blocks_of_the_compiler_compute_what_eager_ones_do() -> None:
    _check(Layout(tp=2), "tied, q/k norm of heads", whole=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "case"),
    [
        (Layout(tp=2), "tied, q/k norm of heads"),
        pytest.param(Layout(tp=2, dp_shard=2), "q/k norm of all heads", marks=pytest.mark.thorough),
        (Layout(cp=2), "grouped queries"),
        (Layout(pp=2, pipeline_schedule="zbv"), "grouped queries"),
        (Layout(dp_shard=2, ep=2), "experts, softmax"),
    ],
    ids=str,
)
def test_traced_blocks_compute_what_eager_ones_do(layout: Layout, case: str) -> None:
    _check(layout, case, whole=False)


def _check(layout: Layout, case: str, whole: bool) -> None:
    for rank, (eager, *others) in enumerate(run_ranks(_all, layout.world_size, layout, case, whole, timeout=280)):
        for compiled in others:
            _compare(compiled, eager, rank)


def _compare(compiled: parity.Outcome, eager: parity.Outcome, rank: int) -> None:
    assert compiled.loss == pytest.approx(eager.loss, rel=1e-6)
    total = float(eager.norms.norm())
    for (name, _, ours), (_, _, theirs) in zip(compiled.gradients, eager.gradients, strict=True):
        if theirs is None or ours is None:
            assert theirs is None
            assert ours is None
        else:
            floor = max(float(theirs.norm()), 1e-4 * total)
            assert float((ours - theirs).norm()) < 1e-5 * floor, f"{name} on rank {rank}"
