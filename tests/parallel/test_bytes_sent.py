"""Layouts send no more than they must, where it is easily more."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from stoker.bench.traffic import Call, Traffic
from stoker.layout import Layout
from stoker.model import Decoder, initialise
from stoker.parallel import Inputs, apply, join_world
from stoker.recipe import Model
from tests.distributed import run_ranks

SHAPE = Model(layers=2, hidden_size=16, heads=2, kv_heads=2, ffn_hidden_size=32)
B, L, VOCABULARY, MICRO_BATCHES = 2, 16, 32, 3


def _step(rank: int, ranks: int, store: dist.Store, layout: Layout) -> tuple[list[Call], int]:
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        model = Decoder(SHAPE, VOCABULARY, L)
        initialise(model, SHAPE, 0)
        size = sum(4 * parameter.numel() for parameter in model.parameters())
        parallel = apply(model, world)
        tokens = torch.zeros(B, L, dtype=torch.int64)
        batch = Inputs(tokens, tokens, torch.arange(L).expand(B, L).contiguous(), None, torch.arange(B))
        settings: dict[str, Any] = {"step": 0, "seed": 0, "loss_scale": 1.0}
        with Traffic() as traffic:
            parallel.forward_backward([batch] * MICRO_BATCHES, **settings)
        return traffic.calls, size


def test_copies_of_a_sharded_model_sum_once_a_step() -> None:
    for calls, size in run_ranks(_step, 4, Layout(dp_replicate=2, dp_shard=2)):
        sent = {"all_reduce": 0.0, "reduce_scatter": 0.0, "all_gather": 0.0}
        for call in calls:
            sent[call.kind] += call.sent
        assert sent["all_reduce"] == size / 2
        assert sent["reduce_scatter"] == MICRO_BATCHES * size / 2


def test_ring_attention_sends_keys_and_values_twice_round_and_their_gradients_once() -> None:
    ranks = 3
    keys_and_values = 2 * 4 * B * L * SHAPE.hidden_size
    everywhere = 0.0
    for calls, _ in run_ranks(_step, ranks, Layout(cp=ranks)):
        exchanges = [call for call in calls if call.kind == "all_to_all"]
        assert len(exchanges) == 3 * (ranks - 1) * SHAPE.layers * MICRO_BATCHES
        everywhere += sum(call.sent for call in exchanges)
    assert everywhere == 3 * (ranks - 1) * keys_and_values * SHAPE.layers * MICRO_BATCHES
