"""Every optimizer does its published arithmetic, on the right parameters, however they are sharded."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from stoker.layout import Layout
from stoker.layout.shares import chunk
from stoker.model import Decoder, initialise
from stoker.parallel import join_world
from stoker.parallel.placement import Held, hold, local
from stoker.parallel.shard import shard
from stoker.parallel.whole import gathered
from stoker.recipe import Model, Training
from stoker.training.optimizer import build_optimizer, set_learning_rate
from stoker.training.optimizer.muon import orthogonalise
from stoker.training.precision import autocast, dead_updates
from tests.distributed import run_ranks

OPTIMIZERS = ("adamw", "muon", "adafactor", "lion")
STEPS = 4
Gradients = Callable[[str, int], Tensor]


def _training(name: str, precision: str = "fp32", **optimizer: Any) -> Training:
    return Training.model_validate(
        {
            "steps": 10,
            "sequence_length": 8,
            "global_batch_size": 4,
            "optimizer": {"name": name, **optimizer},
            "precision": precision,
        }
    )


class OddModel(nn.Module):
    """Tall, wide and square matrices whose rows no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.blocks = nn.ModuleList([nn.Linear(5, 9), nn.Linear(9, 5), nn.Linear(5, 5)])
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 7, bias=False)


def _odd_model() -> OddModel:
    torch.manual_seed(0)
    return OddModel().double()


def _gradient(name: str, shape: torch.Size, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step * 1000 + sum(name.encode()))
    scales = {1: 3.0, 2: 1e-3}
    gradient = torch.randn(shape, generator=generator, dtype=torch.float64) * scales.get(step, 1.0)
    return gradient * torch.linspace(0.1, 10, shape[0], dtype=torch.float64).reshape(-1, *[1] * (len(shape) - 1))


def _build(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    return build_optimizer(list(hold(model).values()), training)


def _updated(held: Sequence[Held], training: Training) -> dict[str, Tensor]:
    """Whole weights after some steps on given gradients, each with another learning rate."""
    optimizer = build_optimizer(held, training)
    for step in range(1, STEPS + 1):
        for one in held:
            whole = _gradient(one.name, torch.Size(one.shape), step)
            gradient = whole[tuple(slice(*bounds) for bounds in one.placement.box)]
            if isinstance(one.parameter, DTensor):
                gradient = distribute_tensor(gradient, one.parameter.device_mesh, one.parameter.placements)
            one.parameter.grad = gradient.clone()
        set_learning_rate(optimizer, 1 / step)
        optimizer.step()
    return {one.name: gathered(local(one.parameter.detach()), one).clone() for one in held}


def _adamw_oracle(weights: Tensor, gradients: list[Tensor], lr: float, decay: float, s: Any) -> Tensor:
    m, v = torch.zeros_like(weights), torch.zeros_like(weights)
    for t, g in enumerate(gradients, start=1):
        m, v = s.beta1 * m + (1 - s.beta1) * g, s.beta2 * v + (1 - s.beta2) * g * g
        mean, variance = m / (1 - s.beta1**t), v / (1 - s.beta2**t)
        weights = weights - lr / t * (mean / (variance.sqrt() + s.epsilon) + decay * weights)
    return weights


def _lion_oracle(weights: Tensor, gradients: list[Tensor], lr: float, decay: float, s: Any) -> Tensor:
    m = torch.zeros_like(weights)
    for t, g in enumerate(gradients, start=1):
        weights = weights - lr / t * (torch.sign(s.beta1 * m + (1 - s.beta1) * g) + decay * weights)
        m = s.beta2 * m + (1 - s.beta2) * g
    return weights


def _adafactor_oracle(weights: Tensor, gradients: list[Tensor], lr: float, decay: float, s: Any) -> Tensor:
    row = column = v = torch.zeros((), dtype=weights.dtype)
    for t, g in enumerate(gradients, start=1):
        beta, squares = 1 - t**-s.decay_exponent, g * g + s.epsilon
        if g.ndim == 2:
            row = beta * row + (1 - beta) * squares.sum(1)
            column = beta * column + (1 - beta) * squares.sum(0)
            second = torch.outer(row, column) / row.sum()
        else:
            v = beta * v + (1 - beta) * squares
            second = v
        update = g / second.sqrt()
        update = update / max(1.0, float(update.square().mean().sqrt()) / s.clip_threshold)
        weights = weights - lr / t * (update + decay * weights)
    return weights


def _muon_oracle(weights: Tensor, gradients: list[Tensor], lr: float, decay: float, s: Any) -> Tensor:
    m = torch.zeros_like(weights)
    for t, g in enumerate(gradients, start=1):
        m = s.momentum * m + (1 - s.momentum) * g
        ahead = s.momentum * m + (1 - s.momentum) * g
        u, singular, vh = torch.linalg.svd(ahead / ahead.norm(), full_matrices=False)
        for _ in range(s.newton_schulz_steps):
            singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
        update = u @ torch.diag(singular) @ vh * math.sqrt(max(1, g.shape[0] / g.shape[1]))
        weights = weights - lr / t * (update + decay * weights)
    return weights


ORACLES = {"adamw": _adamw_oracle, "lion": _lion_oracle, "adafactor": _adafactor_oracle, "muon": _muon_oracle}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_updates_are_those_of_the_paper_in_fp64(optimizer: str) -> None:
    training = _training(optimizer, weight_decay=0.3)
    start = {name: p.detach().clone() for name, p in _odd_model().named_parameters()}
    found = _updated(list(hold(_odd_model()).values()), training)
    for name, weights in start.items():
        gradients = [_gradient(name, weights.shape, step) for step in range(1, STEPS + 1)]
        settings: Any = training.optimizer
        in_block = name.startswith("blocks.") and weights.ndim == 2
        decay = 0.3 if in_block or name.startswith("head.") else 0.0
        oracle, lr = ORACLES[optimizer], settings.learning_rate
        if optimizer == "muon" and not in_block:
            oracle, lr = _adamw_oracle, settings.adamw_learning_rate
        expected = oracle(weights, gradients, lr, decay, settings)
        torch.testing.assert_close(found[name], expected, rtol=1e-10, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def _divided_rank(rank: int, ranks: int, store: Any, layout: Layout) -> dict[str, dict[str, Tensor]]:
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        results = {}
        for optimizer in OPTIMIZERS:
            model = _odd_model()
            held = hold(model)
            group = world.along("tp")
            if group is not None:  # rows of one matrix, columns of another, as tensor parallelism cuts them
                held["blocks.0.weight"].cut(0, chunk(9, ranks // layout.dp_shard, group.rank()), group)
                held["blocks.0.bias"].cut(0, chunk(9, ranks // layout.dp_shard, group.rank()), group)
                held["blocks.1.weight"].cut(1, chunk(9, ranks // layout.dp_shard, group.rank()), group)
            shard(model, model.blocks, world, None)
            results[optimizer] = _updated(list(held.values()), _training(optimizer))
        return results


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp_shard=2),
        Layout(dp_shard=4),
        Layout(dp_replicate=2, dp_shard=2),
        Layout(dp_replicate=2),
        Layout(tp=2),
        Layout(tp=4),
        Layout(tp=2, dp_shard=2),
    ],
    ids=str,
)
def test_divided_parameters_get_the_update_of_one_process(layout: Layout) -> None:
    whole = {optimizer: list(hold(_odd_model()).values()) for optimizer in OPTIMIZERS}
    expected = {optimizer: _updated(held, _training(optimizer)) for optimizer, held in whole.items()}
    for result in run_ranks(_divided_rank, layout.world_size, layout):
        for optimizer in OPTIMIZERS:
            for name, weights in expected[optimizer].items():
                torch.testing.assert_close(result[optimizer][name], weights, rtol=1e-12, atol=1e-13)


def _decayed(model: nn.Module, training: Training) -> set[str]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = _build(model, training)
    every = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    assert sorted(every) == sorted(names.values()), "each parameter is in exactly one group"
    return {names[id(p)] for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("tied", [False, True])
def test_only_matrices_of_blocks_and_an_untied_head_decay(tied: bool, optimizer: str) -> None:
    config = Model(
        hidden_size=8,
        layers=2,
        heads=2,
        ffn_hidden_size=12,
        tie_embeddings=tied,
        norm="layer",
        position="learned",
        attention_bias=True,
        qk_norm="head",
    )
    model = Decoder(config, 11, 8)
    training = _training(optimizer, weight_decay=0.1)
    blocks = {name for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2}
    assert len(blocks) == 14
    assert _decayed(model, training) == blocks | (set() if tied else {"head.weight"})
    everything = training.model_copy(update={"decay_all_parameters": True})
    assert _decayed(model, everything) == {name for name, _ in model.named_parameters()}


def test_muon_holds_the_matrices_of_the_blocks_and_adamw_the_rest() -> None:
    model = _odd_model()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = _build(model, _training("muon"))
    first, *rest = optimizer.param_groups
    assert [names[id(p)] for p in first["params"]] == [f"blocks.{i}.weight" for i in range(3)]
    assert (first["base_learning_rate"], {group["base_learning_rate"] for group in rest}) == (0.02, {3e-4})
    _updated_keys = {"momentum", "step", "exp_avg", "exp_avg_sq"}
    for name, parameter in model.named_parameters():
        parameter.grad = _gradient(name, parameter.shape, 1)
    optimizer.step()
    assert {key for state in optimizer.state.values() for key in state} == _updated_keys
    assert all(set(optimizer.state[p]) == {"momentum"} for p in first["params"])


@pytest.mark.parametrize("shape", [(6, 6), (12, 5), (5, 12), (1, 4)])
def test_orthogonalised_matrices_keep_their_directions_and_lose_their_lengths(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    matrix = torch.randn(shape, dtype=torch.float64)
    result = orthogonalise(matrix, 5)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    rotated = u.mT @ result @ vh.mT
    lengths = rotated.diagonal()
    assert (rotated - torch.diag(lengths)).abs().max() < 1e-12
    assert lengths.min() > 0.3
    assert lengths.max() < 1.3


def test_orthogonalising_zeros_gives_zeros() -> None:
    assert torch.equal(orthogonalise(torch.zeros(3, 4), 5), torch.zeros(3, 4))


@pytest.mark.parametrize("precision", ["fp32", "pure_bf16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_at_learning_rate_zero_nothing_moves(optimizer: str, precision: str) -> None:
    model = _odd_model().to(torch.bfloat16 if precision == "pure_bf16" else torch.float32)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    built = _build(model, _training(optimizer, precision))
    for name, parameter in model.named_parameters():
        parameter.grad = _gradient(name, parameter.shape, 1).to(parameter.dtype)
    assert set_learning_rate(built, 0.0) == 0.0
    built.step()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parameters_without_a_gradient_are_left_alone(optimizer: str) -> None:
    model = _odd_model()
    built = _build(model, _training(optimizer))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model.norm.weight.grad = torch.ones_like(model.norm.weight)
    built.step()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {"norm.weight"}
    assert len(built.state) == 1


def test_the_learning_rate_returned_is_the_first_groups() -> None:
    for optimizer, rate in (("adamw", 3e-4), ("muon", 0.02), ("adafactor", 1e-3), ("lion", 1e-4)):
        built = _build(_odd_model(), _training(optimizer))
        assert set_learning_rate(built, 0.5) == 0.5 * rate
        assert [group["lr"] for group in built.param_groups] == [
            0.5 * group["base_learning_rate"] for group in built.param_groups
        ]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_state_of_16_bit_weights_is_16_bit_but_for_counts_and_factored_statistics(optimizer: str) -> None:
    model = _odd_model().bfloat16()
    built = _build(model, _training(optimizer, "pure_bf16"))
    for name, parameter in model.named_parameters():
        parameter.grad = _gradient(name, parameter.shape, 1).bfloat16()
    built.step()
    for state in built.state.values():
        for key, value in state.items():
            wide = key == "step" or optimizer == "adafactor"
            assert value.dtype == (torch.float32 if wide else torch.bfloat16), key
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.bfloat16), ("bf16", torch.float16), ("pure_bf16", torch.float32)]
)
def test_weights_of_another_type_than_the_precision_keeps_are_refused(precision: str, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="keeps weights in"):
        _build(_odd_model().to(dtype), _training("adamw", precision))


def _hundred_updates(precision: str) -> tuple[Decoder, dict[str, Tensor], list[float]]:
    config = Model(hidden_size=16, layers=2, heads=2, ffn_hidden_size=24)
    model = Decoder(config, 23, 8)
    initialise(model, config, seed=1)
    model.to(torch.bfloat16 if precision == "pure_bf16" else torch.float32)
    optimizer = _build(model, _training("adamw", precision))
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    dead = []
    for _ in range(100):
        tokens = torch.randperm(32, generator=generator).remainder(23).reshape(4, 8)
        with autocast(precision, torch.device("cpu")):  # type: ignore[arg-type]
            losses = model(tokens, (tokens * 5 + 2) % 23)
        losses.loss_sum.backward()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        unmoved, everything = dead_updates(before, hold(model).values()).tolist()
        dead.append(unmoved / everything)
    return model, start, dead


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_nearly_every_weight_has_moved_after_100_updates(precision: str) -> None:
    model, start, dead = _hundred_updates(precision)
    moved = sum(int((parameter != start[name]).sum()) for name, parameter in model.named_parameters())
    assert moved / sum(parameter.numel() for parameter in model.parameters()) > 0.99
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert (parameter != start[name]).all(), name
    assert max(dead) < 0.05


def test_pure_bf16_warns_and_shows_the_updates_it_loses(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="stoker.training"):
        model, start, dead = _hundred_updates("pure_bf16")
    assert [record for record in caplog.records if "pure_bf16" in record.getMessage()]
    assert torch.equal(model.norm.weight, start["norm.weight"]), "gains of 1 are out of reach of an update of 3e-4"
    assert sum(dead) / len(dead) > 0.05
