"""What saves memory in a step changes no bit of what is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.layout import Layout
from stoker.parallel import World, join_world, single_process_world
from stoker.parallel.placement import local
from stoker.recipe import AdamW, Lion
from stoker.training.optimizer import AdamWOptimizer, LionOptimizer
from stoker.training.optimizer.on_host import OnHost
from tests.distributed import run_ranks
from tests.training.test_step import _build, _global_batch, _recipe, _share

CPU = torch.device("cpu")
RELEASED = {"memory": {"release_gradients": True}}


def _weights(world: World, steps: int = 3, **training: Any) -> tuple[list[torch.Tensor], list[float], int]:
    """Weights and norms after some steps, and how many gradients were left after the last backward pass."""
    train = _build(_recipe(layout=world.layout, gradient_clip=None, **training), world)
    left = 0
    norms = []
    for step in range(1, steps + 1):
        accumulate = train.model.gradients.norms

        def counting(accumulate: Any = accumulate) -> torch.Tensor:
            nonlocal left
            left = sum(one.tensor.grad is not None for one in train.model.held)
            return accumulate()

        train.model.gradients.norms = counting  # type: ignore[method-assign]
        result = train(step, _share(_global_batch(step), world, 1), with_modules=False, stop=False)
        train.model.gradients.norms = accumulate  # type: ignore[method-assign]
        norms.append(result.gradient_norm)
    return [local(one.tensor).detach().clone() for one in train.model.held], norms, left


def _check_released(world: World, **training: Any) -> tuple[int, int]:
    expected, norms, all_of_them = _weights(world, **training)
    found, own_norms, left = _weights(world, **training, **RELEASED)
    assert all(map(torch.equal, found, expected))
    assert own_norms == pytest.approx(norms, rel=1e-6)
    return left, all_of_them


@pytest.mark.parametrize("optimizer", ["adamw", "lion"])
@pytest.mark.parametrize("model", [{}, {"tie_embeddings": True}, {"mtp_depth": 1}], ids=str)
def test_released_gradients_give_the_same_weights(optimizer: str, model: dict[str, Any]) -> None:
    left, _ = _check_released(single_process_world(CPU), model=model, optimizer={"name": optimizer})
    assert left == 0


def _released_on(rank: int, ranks: int, store: Any, layout: Layout) -> tuple[int, int]:
    with join_world(layout, rank, CPU, store, 60) as world:
        return _check_released(world)


@pytest.mark.parametrize(
    ("layout", "all_at_once"),
    [
        (Layout(dp_shard=2), True),
        (Layout(dp_replicate=2), False),  # every gradient is summed over ranks afterwards
        (Layout(tp=2), None),
        (Layout(pp=2), True),
        (Layout(dp_shard=2, tp=2), None),
    ],
    ids=str,
)
def test_released_gradients_give_the_same_weights_on_every_rank(layout: Layout, all_at_once: bool | None) -> None:
    for left, all_of_them in run_ranks(_released_on, layout.world_size, layout):
        if all_at_once is None:  # norms are held by all tensor-parallel ranks, which sum their gradients
            assert 0 < left < all_of_them
        else:
            assert left == (0 if all_at_once else all_of_them)


def test_a_gradient_that_is_not_finite_reaches_no_weight() -> None:
    world = single_process_world(CPU)
    train = _build(_recipe(gradient_clip=None, **RELEASED), world)
    weight = train.model.part.blocks["0"].attention.query.weight  # type: ignore[union-attr]
    before = weight.detach().clone()  # type: ignore[union-attr, operator]
    weight.register_hook(lambda gradient: gradient * float("nan"))  # type: ignore[union-attr, operator]
    result = train(1, _share(_global_batch(1), world, 1), with_modules=False, stop=False)
    assert not result.finite
    assert torch.equal(weight, before)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["adamw", "lion"])
def test_an_update_on_the_host_gives_the_same_bits(name: str) -> None:
    def trained(host: OnHost | None) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(size, 7, generator=generator)) for size in (3, 64, 1)]
        group = {"params": weights, "lr": 1e-2, "weight_decay": 0.1}
        if name == "adamw":
            optimizer: torch.optim.Optimizer = AdamWOptimizer([group], AdamW(), True, host)
        else:
            optimizer = LionOptimizer([group], Lion(name="lion"), host)
        for _ in range(3):
            for weight in weights:
                weight.grad = torch.randn(weight.shape, generator=generator)
            optimizer.step()
        states = [value for state in optimizer.state.values() for value in state.values()]
        return [weight.detach() for weight in weights] + states

    assert all(map(torch.equal, trained(OnHost(CPU)), trained(None)))
