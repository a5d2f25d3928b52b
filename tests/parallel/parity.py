"""Runs one step of a tiny model in a layout, and holds everything that comes out against one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from stoker.layout import Layout
from stoker.model import Decoder
from stoker.model.router import RouterStatistics
from stoker.parallel import Inputs, ParallelModel, Settings, World, apply, join_world, single_process_world
from stoker.parallel.placement import Box, local
from stoker.recipe import Model
from tests.distributed import run_ranks

VOCABULARY, LENGTH, SEQUENCES = 37, 13, 8
CPU = torch.device("cpu")
Case = tuple[str, dict[str, Any]]
"""Name and changes of a model."""

DENSE: dict[str, Any] = {"hidden_size": 24, "layers": 4, "heads": 6, "kv_heads": 2, "ffn_hidden_size": 40}
CASES: dict[str, dict[str, Any]] = {
    "grouped queries": {},
    "tied, q/k norm of heads": {"tie_embeddings": True, "qk_norm": "head"},
    "one key head, odd width": {"kv_heads": 1, "ffn_hidden_size": 37, "logit_softcap": 3.0, "z_loss": 0.01},
    "q/k norm of all heads": {"qk_norm": "full", "kv_heads": 3, "norm_position": "both"},
    "gpt": {
        "kv_heads": 6,
        "position": "learned",
        "norm": "layer",
        "activation": "gelu",
        "attention_bias": True,
        "attention_output_bias": True,
        "ffn_bias": True,
        "dropout": 0.2,
        "layer_drop": 0.3,
    },
    "alibi, capped": {"position": "alibi", "attention_softcap": 5.0, "sliding_window": 8},
    "latent attention": {
        "kv_heads": None,
        "latent_attention": {
            "kv_rank": 8,
            "query_rank": 10,
            "nope_head_size": 4,
            "rope_head_size": 2,
            "value_head_size": 5,
        },
    },
    "experts, softmax": {
        "moe": {"experts": 4, "experts_per_token": 2, "auxiliary_loss": 0.1, "z_loss": 0.01},
    },
    "experts, sigmoid, shared, full": {
        "moe": {
            "experts": 4,
            "experts_per_token": 2,
            "expert_ffn_hidden_size": 11,
            "shared_experts": 1,
            "first_dense_layers": 1,
            "gate": "sigmoid",
            "normalise_weights": True,
            "groups": 2,
            "groups_per_token": 1,
            "auxiliary_loss": 0.1,
            "bias_update_rate": 0.01,
            "capacity_factor": 1.2,
        },
    },
    "further tokens": {"mtp_depth": 2, "tie_embeddings": True},
}


@dataclass
class Outcome:
    """What one rank has after a step."""

    loss: float
    norms: Tensor
    names: tuple[str, ...]
    gradients: list[tuple[str, Box, Tensor | None]]
    routing: dict[str, RouterStatistics]
    logits: Tensor


def config_of(case: str) -> Model:
    return Model.model_validate({**DENSE, **CASES[case]})


def inputs() -> Inputs:
    """Packed documents of uneven lengths, and targets that count for nothing."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[0, :5] = -100
    targets[3, 2:] = -100
    starts = torch.randint(2, LENGTH - 2, (SEQUENCES, 1), generator=generator)
    places = torch.arange(LENGTH).expand(SEQUENCES, LENGTH)
    documents = (places >= starts).int()
    return Inputs(
        tokens[:, :-1].contiguous(),
        targets,
        places - starts * documents,
        documents,
        torch.arange(100, 100 + SEQUENCES),
    )


def laid_out(case: str, world: World, dtype: torch.dtype, settings: Settings) -> ParallelModel:
    with torch.device("meta"):
        plain = Decoder(config_of(case), VOCABULARY, LENGTH + 2).to(dtype)
    return apply(plain, world, replace(settings, seed=3))


def step(case: str, world: World, dtype: torch.dtype = torch.float64, settings: Settings | None = None) -> Outcome:
    model = laid_out(case, world, dtype, settings or Settings())
    model.train()
    whole, ranks = inputs(), world.layout.data_parallel_size
    share = SEQUENCES // ranks
    rows = range(world.data_parallel_rank * share, (world.data_parallel_rank + 1) * share)
    size = max(1, share // 4)
    batches = [
        Inputs(*(None if x is None else x[first : first + size] for x in whole))  # type: ignore[arg-type]
        for first in range(rows.start, rows.stop, size)
    ]
    counted = int((whole.targets >= 0).sum())
    sums = model.forward_backward(batches, step=3, seed=1, loss_scale=1 / counted)
    loss = float(world.sum(torch.cat(sums).sum())) / counted
    norms = model.gradients.norms()
    gradients = [
        (one.name, one.box, None if one.tensor.grad is None else local(one.tensor.grad).clone())
        for one in model.held
        if one.is_parameter
    ]
    routing = model.finish_routing(update=True)
    model.train(False)
    logits = model.last_logits(whole.tokens[:1, :7])
    return Outcome(loss, norms, model.gradients.names, gradients, routing, logits)


def on_ranks(rank: int, ranks: int, store: Any, layout: Layout, cases: list[str]) -> list[Outcome]:
    torch.set_num_threads(1)
    with join_world(layout, rank, CPU, store, 60) as world:
        return [step(case, world) for case in cases]


def worst_difference(found: Outcome, expected: Outcome) -> tuple[float, str]:
    """The largest error of a figure of `found`, relative to its whole, and what it is of."""
    whole = {name: gradient for name, _, gradient in expected.gradients}
    total = float(expected.norms.square().sum().sqrt())
    errors = [(abs(found.loss - expected.loss) / abs(expected.loss), "loss")]
    for name, ours, theirs in zip(expected.names, found.norms.tolist(), expected.norms.tolist(), strict=True):
        errors.append((abs(ours - theirs) / max(theirs, 1e-4 * total), f"norm of {name}"))
    for name, box, gradient in found.gradients:
        reference = whole[name]
        assert reference is not None
        part = reference[tuple(slice(*bounds) for bounds in box)]
        gradient = torch.zeros_like(part) if gradient is None else gradient
        floor = max(float(reference.norm()), 1e-4 * total)
        errors.append((float((gradient - part).norm()) / floor, name))
    errors.append((float((found.logits - expected.logits).norm() / expected.logits.norm()), "logits"))
    for module, statistics in expected.routing.items():
        for field, ours, theirs in zip(statistics._fields, found.routing[module], statistics, strict=True):
            scale = float(theirs.to(torch.float64).norm()) or 1.0
            errors.append((float((ours - theirs).to(torch.float64).norm()) / scale, f"{module} {field}"))
    return max(errors)


def check(layout: Layout, cases: list[str], bound: float = 1e-12) -> None:
    expected = [step(case, single_process_world(CPU)) for case in cases]
    for rank, outcomes in enumerate(run_ranks(on_ranks, layout.world_size, layout, cases, timeout=200)):
        for case, found, reference in zip(cases, outcomes, expected, strict=True):
            error, what = worst_difference(found, reference)
            assert error < bound, f"{layout}, {case}, rank {rank}: {what} differs by {error:.1e}"


def assert_same(found: Outcome, expected: Outcome, what: str) -> None:
    """To the bit."""
    assert found.loss == expected.loss, what
    assert torch.equal(found.norms, expected.norms), what
    for (name, _, ours), (_, _, theirs) in zip(found.gradients, expected.gradients, strict=True):
        assert ours is not None
        assert theirs is not None
        assert torch.equal(ours, theirs), f"{what}: {name}"
    for module, counted in expected.routing.items():
        assert all(map(torch.equal, found.routing[module], counted)), f"{what}: {module}"
