"""Every data-parallel layout computes the gradients and norms of one process."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from stoker.layout import Layout
from stoker.parallel import World, apply, join_world, single_process_world
from tests.distributed import run_ranks

LAYOUTS = [
    Layout(dp_replicate=2),
    Layout(dp_shard=2),
    Layout(dp_shard=3),
    Layout(dp_replicate=2, dp_shard=2),
    Layout(dp_replicate=4),
]
SAMPLES = 12


class TinyModel(nn.Module):
    """Widths that no layout divides, a bias, and a parameter that no sample touches."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = hidden + torch.tanh(block(hidden))
        return self.head(self.norm(hidden)).square().sum()


def _tiny_model() -> TinyModel:
    torch.manual_seed(0)
    return TinyModel().double()


def _samples() -> torch.Tensor:
    return torch.arange(SAMPLES * 3).reshape(SAMPLES, 3) % 9


def _gradients(world: World, micro_batches: int) -> dict[str, object]:
    """Gradients (whole), total norm and norm by module of one accumulated step on `world`."""
    model = _tiny_model()
    parallel = apply(model, model.blocks, world)
    share = _samples().chunk(world.layout.data_parallel_size)[world.rank]
    for index, tokens in enumerate(share.chunk(micro_batches)):
        with parallel.accumulating(last=index == micro_batches - 1):
            (parallel.training(tokens) / SAMPLES).backward()
    norms = parallel.gradients.norms()
    whole = {
        name: (p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad)  # type: ignore[union-attr]
        for name, p in model.named_parameters()
    }
    return {
        "gradients": {name: gradient.clone() for name, gradient in whole.items()},
        "norm": parallel.gradients.total_norm(norms),
        "modules": parallel.gradients.by_module(norms),
    }


def _rank(rank: int, ranks: int, store, layout: Layout, micro_batches: int) -> dict[str, object]:
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        return _gradients(world, micro_batches)


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_and_norms_of_every_layout_equal_one_process(layout: Layout, micro_batches: int) -> None:
    expected = _gradients(single_process_world(torch.device("cpu")), 1)
    for result in run_ranks(_rank, layout.world_size, layout, micro_batches):
        for name, gradient in expected["gradients"].items():
            torch.testing.assert_close(result["gradients"][name], gradient, rtol=1e-12, atol=1e-13)
        assert result["norm"] == pytest.approx(expected["norm"], rel=1e-12)
        assert result["modules"] == pytest.approx(expected["modules"], rel=1e-12)


def test_norm_is_the_norm_of_the_whole_gradient_and_scaling_scales_it() -> None:
    model = _tiny_model()
    parallel = apply(model, model.blocks, single_process_world(torch.device("cpu")))
    parallel.training(_samples()).backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    norm = parallel.gradients.total_norm(parallel.gradients.norms())
    assert norm == pytest.approx(float(flat.norm()), rel=1e-12)
    parallel.gradients.scale(0.25)
    assert parallel.gradients.total_norm(parallel.gradients.norms()) == pytest.approx(norm / 4, rel=1e-12)


def test_a_nan_anywhere_makes_the_norm_nan() -> None:
    model = _tiny_model()
    parallel = apply(model, model.blocks, single_process_world(torch.device("cpu")))
    parallel.training(_samples()).backward()
    model.head.bias.grad[3] = float("nan")
    assert parallel.gradients.total_norm(parallel.gradients.norms()) != parallel.gradients.total_norm(
        parallel.gradients.norms()
    )
