"""Blocks compiled one by one compute what eager ones do, without graph breaks and without compiling anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from stoker.model import Decoder
from stoker.parallel.compilation import compile_block
from tests.model.shapes import LENGTH, SHAPES, config_of, draw_tokens, model_of, pack

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def gradients_of(model: Decoder, lengths: list[list[int]], samples: bool = False) -> dict[str, torch.Tensor]:
    model.zero_grad()
    positions, documents = pack(lengths)
    rows = len(lengths)
    tokens, targets = draw_tokens(rows, LENGTH), draw_tokens(rows, LENGTH, seed=1)
    numbers = torch.arange(rows) if samples else None
    losses = model(tokens, targets, positions, documents, numbers, step=2)
    losses.loss_sum.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": losses.loss_sum.detach(), **found}


@pytest.mark.parametrize("shape", [shape for shape, given in SHAPES.items() if "moe" not in given])
def test_a_block_is_one_graph_for_all_layers_and_all_batches_of_a_kind(shape: str) -> None:
    assert graphs_of_two_batches(shape, partial(nn.Module.compile, dynamic=False, fullgraph=True)) == [1, 1]


@pytest.mark.parametrize("shape", [shape for shape, given in SHAPES.items() if "moe" in given])
def test_only_the_experts_of_a_block_stay_out_of_its_graphs(shape: str) -> None:
    first, second = graphs_of_two_batches(shape, compile_block)
    before_and_after, dense = 2, 1
    assert first == before_and_after + (dense if SHAPES[shape]["moe"].get("first_dense_layers") else 0)
    assert second == first


def graphs_of_two_batches(shape: str, compile_with: Callable[..., None]) -> list[int]:
    """How many graphs four layers were compiled to after each of two batches, checked against eager ones."""
    eager, compiled = model_of(config_of(shape, layers=4)), model_of(config_of(shape, layers=4))
    backend = CompileCounterWithBackend("aot_eager")
    for block in compiled.blocks.values():
        compile_with(block, backend=backend)
    graphs = []
    for lengths in ([[5, 11], [16]], [[1, 2, 3, 4, 6], [8, 8]]):
        wanted, got = gradients_of(eager, lengths), gradients_of(compiled, lengths)
        assert got.keys() == wanted.keys()
        for name, gradient in got.items():
            assert torch.allclose(gradient, wanted[name], rtol=1e-9, atol=1e-10), name
        graphs.append(backend.frame_count)
    return graphs


def test_layer_drop_compiles_too() -> None:
    eager, compiled = (model_of(config_of("llama", layer_drop=0.5)).train() for _ in range(2))
    for block in compiled.blocks.values():
        block.compile(dynamic=False, fullgraph=True, backend="aot_eager")
    lengths = [[16], [16]]
    wanted = gradients_of(eager, lengths, samples=True)
    for name, gradient in gradients_of(compiled, lengths, samples=True).items():
        assert torch.allclose(gradient, wanted[name], rtol=1e-9, atol=1e-10), name


@pytest.mark.parametrize("shape", ["grouped", pytest.param("geglu-both", marks=pytest.mark.thorough)])
def test_generated_kernels_compute_the_same(shape: str) -> None:
    eager, compiled = (model_of(config_of(shape), torch.float32) for _ in range(2))
    for block in compiled.blocks.values():
        compile_block(block)
    lengths = [[5, 11], [16]]
    wanted = gradients_of(eager, lengths)
    for name, gradient in gradients_of(compiled, lengths).items():
        assert torch.allclose(gradient, wanted[name], rtol=1e-4, atol=1e-4 * float(wanted[name].abs().max())), name
