"""Activations in host memory give the bits they gave before."""

from __future__ import annotations

import gc

import pytest
import torch

from stoker.parallel.pipeline import offload
from stoker.parallel.pipeline.offload import Offload, Rest
from tests.parallel.pipeline.pipelines import Runner, batches_of, bf16_autocast, config_of, model_of


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
            assert bool(rest._resting) == (smallest < 2**20)
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
    assert len(rest._resting) == 1
    total.backward()
    del total
    gc.collect()
    assert rest._resting[0]() is None


def test_a_freed_tensor_is_not_taken_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SMALLEST_BYTES", 0)
    weight = torch.ones((), requires_grad=True)
    rest = Rest(Offload(torch.nn.Module(), torch.device("cpu")))
    with rest.saving():
        total = sum((weight * torch.full((64,), float(n))).sum() for n in range(50))
    total.backward()  # type: ignore[union-attr]
    assert weight.grad == 64 * sum(range(50))
