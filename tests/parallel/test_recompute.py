"""Recomputed layers give the gradients of kept ones, to the bit, in every layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.layout import Layout
from stoker.parallel import Settings, join_world, single_process_world
from stoker.recipe.memory import OPERATIONS, Recomputation, Recomputed
from tests.distributed import run_ranks
from tests.parallel import parity

pytestmark = pytest.mark.slow

LAYERS = 4 + 2  # those of modules for further tokens come after the others
CHOICES: dict[str, dict[int, Recomputed]] = {
    "full": {layer: frozenset(OPERATIONS) for layer in range(LAYERS)},
    "every second layer": {layer: frozenset(OPERATIONS) for layer in range(0, LAYERS, 2)},
    "cheap operations": {layer: frozenset() for layer in range(LAYERS)},
    "attention": {layer: frozenset({"attention"}) for layer in range(LAYERS)},
    "feed-forward and experts": {layer: frozenset({"feed_forward", "experts"}) for layer in range(LAYERS)},
    "around attention": {
        layer: frozenset({"attention_projections", "attention_output"}) for layer in range(LAYERS)
    },
}


@pytest.mark.parametrize("case", parity.CASES)
def test_one_process_computes_the_same_bits(case: str) -> None:
    world = single_process_world(parity.CPU)
    expected = parity.step(case, world)
    for name, choices in CHOICES.items():
        parity.assert_same(
            parity.step(case, world, settings=Settings(recompute=Recomputation(choices))), expected, name
        )


def _on_ranks(rank: int, ranks: int, store: Any, layout: Layout, cases: list[str], names: list[str]) -> None:
    torch.set_num_threads(1)
    with join_world(layout, rank, parity.CPU, store, 60) as world:
        for case in cases:
            expected = parity.step(case, world)
            for name in names:
                found = parity.step(case, world, settings=Settings(recompute=Recomputation(CHOICES[name])))
                parity.assert_same(found, expected, f"{layout}, {case}, {name}, rank {rank}")


LLAMA, GPT, LATENT, FURTHER = "grouped queries", "gpt", "latent attention", "further tokens"
EXPERTS = ["experts, softmax", "experts, sigmoid, shared, full"]


@pytest.mark.parametrize(
    ("layout", "cases"),
    [
        (Layout(dp_shard=2), [LATENT, EXPERTS[0]]),
        (Layout(dp_shard=2, zero_stage=1), [LLAMA]),
        (Layout(tp=2), [GPT, LATENT, EXPERTS[1]]),
        (Layout(tp=3), ["q/k norm of all heads"]),
        (Layout(cp=2), [LATENT, EXPERTS[1]]),
        (Layout(cp=2, cp_method="all_gather"), [LLAMA]),
        (Layout(cp=2, cp_method="ulysses"), [LLAMA]),
        (Layout(dp_shard=2, ep=2), EXPERTS),
        (Layout(tp=2, ep=2, expert_tp=False), EXPERTS[1:]),
        (Layout(pp=2, dp_replicate=2), [FURTHER]),
        (Layout(pp=2, pipeline_schedule="zbv"), [LLAMA, FURTHER, EXPERTS[1]]),
        (Layout(pp=2, dp_shard=2, pipeline_schedule="interleaved_zero_bubble"), [LLAMA]),
        (Layout(pp=2, tp=2, pipeline_schedule="dualpipe_v"), ["q/k norm of all heads"]),
    ],
    ids=str,
)
def test_every_rank_computes_the_same_bits(layout: Layout, cases: list[str]) -> None:
    run_ranks(_on_ranks, layout.world_size, layout, cases, ["full", "feed-forward and experts"], timeout=200)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "layout",
    [
        Layout(pp=2, tp=2, dp_shard=2, pipeline_schedule="zbv"),
        Layout(dp_replicate=2, dp_shard=2, tp=2, zero_stage=2),
    ],
    ids=str,
)
def test_three_dimensions_on_eight_ranks(layout: Layout) -> None:
    run_ranks(_on_ranks, 8, layout, [EXPERTS[0]], ["full", "around attention"], timeout=200)
