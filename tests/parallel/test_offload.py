"""Activations in host memory give the bits they gave before."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from stoker.layout import Layout
from stoker.parallel import Settings, join_world, offload
from stoker.parallel.offload import Offload, Rest
from stoker.recipe.memory import Recomputation
from tests.distributed import run_ranks
from tests.parallel import parity
from tests.parallel.pipeline.pipelines import Runner, batches_of, bf16_autocast, config_of, model_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("smallest", [0, 700, 2**20])
def test_gradients_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch, smallest: int) -> None:
    monkeypatch.setattr(offload, "SMALLEST_BYTES", smallest)
    for autocast in (None, bf16_autocast):
        plain, moved = (model_of(config_of(layers=2, dropout=0.2), torch.float32) for _ in range(2))
        run = Runner() if autocast is None else Runner(0, autocast)
        away = Offload(moved, torch.device("cpu"))
        for batch in batches_of(2):
            run(plain, batch, None).loss_sum.backward()  # type: ignore[union-attr]
            rest = Rest(away)
            with rest.saving():
                losses = run(moved, batch, None)
            assert bool(rest.resting) == (smallest < 2**20)
            rest.fetch()
            losses.loss_sum.backward()  # type: ignore[union-attr]
        for name, parameter in plain.named_parameters():
            assert torch.equal(parameter.grad, moved.get_parameter(name).grad), name  # type: ignore[arg-type]


def test_weights_stay_and_what_several_layers_save_is_moved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SMALLEST_BYTES", 0)
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in range(3))
    rest = Rest(Offload(layers, torch.device("cpu")))
    x = torch.randn(5, 4)
    with rest.saving():
        total = sum(layer(x) for layer in layers).sum()  # type: ignore[union-attr]
    assert len(rest.resting) == 1
    total.backward()
    del total
    gc.collect()
    assert rest.resting == []


def test_a_freed_tensor_is_not_taken_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SMALLEST_BYTES", 0)
    weight = torch.ones((), requires_grad=True)
    rest = Rest(Offload(torch.nn.Module(), torch.device("cpu")))
    with rest.saving():
        total = sum((weight * torch.full((64,), float(n))).sum() for n in range(50))
    total.backward()  # type: ignore[union-attr]
    assert weight.grad == 64 * sum(range(50))


def _on_ranks(rank: int, ranks: int, store: Any, layout: Layout, cases: list[str]) -> None:
    torch.set_num_threads(1)
    both = [
        Settings(offload_activations=True),
        Settings(offload_activations=True, recompute=Recomputation(dict.fromkeys(range(6), frozenset()))),
    ]
    with join_world(layout, rank, parity.CPU, store, 60) as world:
        for case in cases:
            expected = parity.step(case, world)
            for settings in both:
                parity.assert_same(parity.step(case, world, settings=settings), expected, f"{layout}, {case}")


@pytest.mark.parametrize(
    ("layout", "cases"),
    [
        (Layout(dp_replicate=2), ["gpt", "latent attention", "further tokens"]),
        (Layout(dp_shard=2, ep=2), ["experts, softmax"]),
        (Layout(tp=2), ["q/k norm of all heads"]),
        (Layout(cp=2, pp=2), ["grouped queries"]),
        (Layout(pp=2, pipeline_schedule="zbv"), ["grouped queries", "experts, softmax"]),
    ],
    ids=str,
)
def test_every_rank_computes_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, layout: Layout, cases: list[str]
) -> None:
    monkeypatch.setattr(offload, "SMALLEST_BYTES", 0)
    run_ranks(_on_ranks, layout.world_size, layout, cases, timeout=150)


def test_a_layer_is_fetched_while_backward_computes_the_one_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SMALLEST_BYTES", 0)
    log: list[tuple[str, int]] = []

    class Logged:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.layer, self.tensor, self.fetched = len(rest._layers) - 1, tensor.clone(), False
            log.append(("rests", self.layer))

        def fetch(self) -> None:
            if not self.fetched:
                log.append(("fetched", self.layer))
            self.fetched = True

        def here(self) -> torch.Tensor:
            assert self.fetched, "backward waits for what nobody has asked for"
            log.append(("used", self.layer))
            return self.tensor

    model = model_of(config_of(layers=4))
    away = Offload(model, torch.device("cpu"), Logged)
    rest = Rest(away, long=False)
    with rest.saving():
        losses = Runner()(model, batches_of(1)[0], None)
    assert {layer for what, layer in log if what == "rests"} == {0, 1, 2, 3}  # of the last layer nothing is moved
    losses.loss_sum.backward()  # type: ignore[union-attr]
    for layer in (1, 2, 3):
        fetched = max(place for place, entry in enumerate(log) if entry == ("fetched", layer - 1))
        last_use = max(place for place, entry in enumerate(log) if entry == ("used", layer))
        assert fetched < last_use
