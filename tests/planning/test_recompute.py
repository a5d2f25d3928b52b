"""What to compute again is solved, and what layers keep is told to the byte."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker.errors import BadInput
from stoker.model import Decoder, initialise
from stoker.parallel.recompute import recompute
from stoker.planning.activations import kept_by_layer
from stoker.planning.memory import pass_of, peak_memory, recomputation_of_rank
from stoker.planning.plan import Plan, make_plan
from stoker.planning.recompute import Option, operations_of, options_of, solve
from stoker.recipe import Recipe
from stoker.recipe.memory import OPERATIONS, Recomputed
from stoker.training.precision import autocast, parameter_dtype
from tests.planning.live_bytes import kept_bytes
from tests.planning.machines import machine
from tests.planning.test_memory import CPU, recipe_of

pytestmark = pytest.mark.slow

WIDE = {"hidden_size": 64, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_hidden_size": 160}
MODELS: dict[str, dict[str, Any]] = {
    "llama": WIDE,
    "gpt": {**WIDE, "kv_heads": 4, "norm": "layer", "activation": "gelu", "position": "learned", "ffn_bias": True},
    "both norms": {**WIDE, "norm_position": "both", "qk_norm": "head"},
    "capped": {**WIDE, "attention_softcap": 20.0},
    "latent": {
        **WIDE,
        "kv_heads": None,
        "latent_attention": {
            "kv_rank": 24,
            "query_rank": 32,
            "nope_head_size": 16,
            "rope_head_size": 8,
            "value_head_size": 16,
        },
    },
    "experts": {
        **WIDE,
        "moe": {"experts": 4, "experts_per_token": 2, "shared_experts": 1, "expert_ffn_hidden_size": 48},
    },
}


def _options(draw: random.Random) -> list[list[Option]]:
    return [
        [Option(None, draw.randint(20, 60), 0.0)]
        + [Option(frozenset(), draw.randint(1, 50), draw.uniform(1, 9)) for _ in range(draw.randint(1, 4))]
        for _ in range(draw.randint(1, 5))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_the_solution_is_the_best_of_all(seed: int) -> None:
    draw = random.Random(seed)
    layers = _options(draw)
    least = sum(min(option.kept for option in options) for options in layers)
    budget = least + draw.randint(0, 100)
    fitting = [ways for ways in itertools.product(*layers) if sum(way.kept for way in ways) <= budget]
    best = min(sum(way.work for way in ways) for ways in fitting)
    found = solve(layers, budget)
    assert all(way in options for way, options in zip(found, layers, strict=True))
    assert sum(way.kept for way in found) <= budget
    assert sum(way.work for way in found) == pytest.approx(best)


def test_a_budget_below_what_inputs_take_is_refused() -> None:
    with pytest.raises(BadInput, match="keep 4 MiB for their inputs alone"):
        solve([[Option(frozenset(OPERATIONS), 4 * 2**20, 9.0), Option(None, 8 * 2**20, 0.0)]], 3 * 2**20)


@pytest.mark.parametrize("shape", MODELS)
def test_a_larger_budget_keeps_more_and_repeats_less(shape: str) -> None:
    def planned(**wanted: Any) -> tuple[int, float]:
        recipe = recipe_of(MODELS[shape], memory={"recompute": wanted}, sequence_length=128)
        plan = make_plan(recipe, 256, machine())
        return peak_memory(recipe, 256, 4, 1, "cpu").activations, plan.step_seconds.recompute

    (most, nothing), (least, everything) = planned(name="none"), planned(name="full")
    assert most > least
    assert nothing == 0 < everything
    budgets = [0.8, 1.2, 2.0, 3.0, 1e3]
    found = [planned(name="budget", budget_mib=size) for size in budgets]
    seconds = [repeats for _, repeats in found]
    assert seconds == sorted(seconds, reverse=True)
    assert everything > seconds[1] > seconds[2]
    assert found[-1] == (most, nothing)


def test_layers_are_chosen_for_apart_and_all_passes_in_flight_share_the_budget() -> None:
    def layers(size: float, layout: dict[str, Any] | None = None, rank: int = 0, **training: Any) -> Any:
        memory = {"recompute": {"name": "budget", "budget_mib": size}}
        recipe = recipe_of(WIDE, layout, memory=memory, sequence_length=128, **training)
        return recomputation_of_rank(recipe, 256, "cpu", rank).layers

    recipe = recipe_of(WIDE, sequence_length=128)
    whole = kept_by_layer(recipe.model, pass_of(recipe, 256, 4, "cpu"), 0, None) / 2**20
    some = layers(2.3 * whole)
    assert len(set(map(str, [some.get(layer) for layer in range(4)]))) > 1
    pipeline = {"pp": 2, "pipeline_schedule": "1f1b"}
    first, last = (
        layers(2.01 * whole, pipeline, rank, micro_batch_size=4, global_batch_size=16) for rank in (0, 1)
    )
    assert set(first) <= {0, 1}
    assert set(last) <= {2, 3}
    assert last == {}  # one pass at a time, of two layers; the first stage has two
    assert len(first) == 2


def _forward(recipe: Recipe, layers: int, recomputed: Recomputed | None) -> Callable[[], object]:
    model = Decoder(recipe.model.model_copy(update={"layers": layers}), 64, 128)
    initialise(model, model.config, 0)
    model.to(parameter_dtype(recipe.training.precision)).train()
    if recomputed is not None:
        recompute(model, dict.fromkeys(range(layers), recomputed))
    tokens = torch.randint(0, 64, (2, 128), generator=torch.Generator().manual_seed(0))

    def forward() -> object:
        with autocast(recipe.training.precision, CPU):
            return model(tokens, tokens, samples=torch.arange(2))

    return forward


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", MODELS)
def test_what_a_layer_keeps_is_told_within_a_hundredth(shape: str, precision: str) -> None:
    recipe = recipe_of(MODELS[shape], precision=precision, sequence_length=128, document_mask=False)
    pass_ = pass_of(recipe, 64, 2, "cpu")
    possible = operations_of(recipe.model, 0)
    choices: list[Recomputed | None] = [frozenset(OPERATIONS), frozenset()]
    if precision == "fp32":  # elsewhere autocast's copies of weights are kept too, which are told apart
        choices.append(None)
    choices += [frozenset(OPERATIONS) - {one} for one in possible]
    passes = [_forward(recipe, layers, choice) for choice in choices for layers in (1, 1, 2)]
    found = kept_bytes(passes)  # the first pass of a kind may keep what all share
    kept = [two - one for one, two in zip(found[1::3], found[2::3], strict=True)]
    planned = [kept_by_layer(recipe.model, pass_, 0, choice) for choice in choices]
    assert planned == pytest.approx(kept, rel=0.01)
    assert options_of(recipe.model, pass_, 0)[0].recomputed == frozenset(OPERATIONS)


def test_a_plan_knows_each_technique_and_says_what_it_saves() -> None:
    def plan(device: str = "cuda", **memory: Any) -> Plan:
        recipe = recipe_of(WIDE, memory=memory, gradient_clip=None, sequence_length=128)
        return make_plan(recipe, 256, machine(device=device))

    plain, moved = plan(), plan(offload_activations=True, offload_optimizer=True)
    assert moved.peak_memory_gib.optimizer == 0 < plain.peak_memory_gib.optimizer
    assert moved.peak_memory_gib.activations < plain.peak_memory_gib.activations
    assert plan("cpu", offload_optimizer=True).peak_memory_gib == plan("cpu").peak_memory_gib
    released = plan(release_gradients=True)
    assert released.peak_memory_gib.gradients < 0.5 * plain.peak_memory_gib.gradients
    again = plan(recompute={"name": "full"})
    assert again.peak_memory_gib.total < plain.peak_memory_gib.total
    assert again.step_seconds.total > plain.step_seconds.total
    for planned, words in (
        (moved, "optimizer state rests in host memory"),
        (released, "gradients that no sum over ranks follows"),
        (again, "4 layers of the first rank compute again in backward"),
    ):
        assert any(words in reason for reason in planned.reasons)
