"""A backward pass in two halves gives the bits of a whole one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stoker.layout import Layout
from stoker.parallel import join_world
from stoker.parallel.pipeline.deferred import WeightGradients
from stoker.parallel.tensor_parallel import RowParallelLinear
from tests.distributed import run_ranks
from tests.parallel.pipeline.pipelines import Runner, batches_of, bf16_autocast, config_of, model_of

BIASED = {"attention_bias": True, "attention_output_bias": True, "ffn_bias": True, "norm": "layer"}
MIXTURE = {"moe": {"experts": 3, "experts_per_token": 2, "shared_experts": 1, "auxiliary_loss": 0.1}}
PRECISIONS = {
    "fp64": (torch.float64, nullcontext),
    "fp32": (torch.float32, nullcontext),
    "bf16": (torch.bfloat16, nullcontext),
    "bf16_autocast": (torch.float32, bf16_autocast),
}


def _gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", [{}, BIASED, MIXTURE], ids=["plain", "biased", "mixture"])
def test_two_halves_give_the_bits_of_a_whole_backward(shape: dict[str, Any], precision: str) -> None:
    dtype, autocast = PRECISIONS[precision]
    whole, halves = (model_of(config_of(layers=2, qk_norm="none", **shape), dtype) for _ in range(2))
    later = WeightGradients()
    later.install(halves)
    batches, run = batches_of(3), Runner(0, autocast)
    for batch in batches:
        run(whole, batch, None).loss_sum.backward()  # type: ignore[union-attr]
    for index, batch in enumerate(batches):
        with later.put_off(index):
            run(halves, batch, None).loss_sum.backward()  # type: ignore[union-attr]
    assert halves.get_parameter("blocks.0.attention.query.weight").grad is None
    assert halves.get_parameter("blocks.0.attention_norm.weight").grad is not None
    if "moe" in shape:
        assert all(parameter.grad is None for parameter in halves.mixtures()["blocks.0"].experts.parameters())
    assert len(later) == 3
    for index in range(3):
        later.run(index)
    assert len(later) == 0
    for name, gradient in _gradients(whole).items():
        assert gradient is not None
        assert torch.equal(gradient, halves.get_parameter(name).grad), name


def test_outside_of_put_off_a_backward_is_whole_and_hooks_are_called() -> None:
    model, later, seen = model_of(config_of(layers=2)), WeightGradients(), []
    later.install(model)
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    Runner()(model, batches_of(1)[0], None).loss_sum.backward()
    assert sorted(seen) == sorted(_gradients(model))
    assert len(later) == 0


def test_frozen_parameters_get_no_gradient() -> None:
    layer, later = nn.Linear(3, 4), WeightGradients()
    later.install(layer)
    layer.weight.requires_grad_(False)
    x = torch.randn(2, 5, 3, requires_grad=True)
    with later.put_off(0):
        layer(x).sum().backward()
    later.run(0)
    assert layer.weight.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((4,), 10.0))
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand_as(x))


def test_a_part_without_rows_or_tokens_works() -> None:
    for tokens, rows in [(0, 4), (5, 0)]:
        layer, later = nn.Linear(3, 4, bias=False), WeightGradients()
        layer.weight = nn.Parameter(torch.randn(rows, 3))
        later.install(layer)
        x = torch.randn(2, tokens, 3, requires_grad=True)
        with later.put_off(0):
            layer(x).sum().backward()
        later.run(0)
        assert layer.weight.grad is not None
        assert layer.weight.grad.shape == (rows, 3)
        assert x.grad is not None
        assert x.grad.shape == x.shape


def test_compiled_blocks_put_off_too() -> None:
    plain, compiled = (model_of(config_of(layers=2)) for _ in range(2))
    later = WeightGradients()
    later.install(compiled)
    for block in compiled.blocks.values():
        block.compile(backend="aot_eager", dynamic=False)
    batch = batches_of(1)[0]
    Runner()(plain, batch, None).loss_sum.backward()  # type: ignore[union-attr]
    with later.put_off(0):
        Runner()(compiled, batch, None).loss_sum.backward()  # type: ignore[union-attr]
    assert compiled.get_parameter("blocks.1.feed_forward.up.weight").grad is None
    later.run(0)
    for name, gradient in _gradients(plain).items():
        torch.testing.assert_close(compiled.get_parameter(name).grad, gradient, rtol=1e-12, atol=1e-13)


def _row_parallel(rank: int, ranks: int, store: Any) -> None:
    with join_world(Layout(tp=ranks), rank, torch.device("cpu"), store, 60) as world:
        torch.manual_seed(rank)
        group = world.along("tp")
        assert group is not None
        layers = [RowParallelLinear(nn.Linear(3, 4).double(), group) for _ in range(2)]
        layers[1].load_state_dict(layers[0].state_dict())
        later = WeightGradients()
        later.install(layers[1])
        given = torch.randn(2, 7, 3, dtype=torch.float64)
        inputs = [given.clone().requires_grad_() for _ in layers]
        outputs = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
        assert torch.equal(*outputs)
        outputs[0].square().sum().backward()
        with later.put_off(0):
            outputs[1].square().sum().backward()
        assert layers[1].weight.grad is None
        later.run(0)
        assert torch.equal(inputs[0].grad, inputs[1].grad)
        for name, gradient in _gradients(layers[0]).items():
            assert torch.equal(layers[1].get_parameter(name).grad, gradient), name


def test_row_parallel_layers_put_off_too() -> None:
    run_ranks(_row_parallel, 2)
