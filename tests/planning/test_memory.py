"""The account of memory, against the bytes that real models, optimizers and passes hold."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch._functorch import config as functorch_config
from torch.distributed.tensor import DTensor

from stoker.layout import Layout
from stoker.model import Block, Decoder, initialise
from stoker.model import loss as model_loss
from stoker.model.decoder import Shared
from stoker.model.position import rotary_angles
from stoker.parallel import Inputs, apply, join_world, single_process_world
from stoker.parallel.compilation import RECOMPUTE_POINTWISE
from stoker.planning import memory as planned_memory
from stoker.planning.activations import activations
from stoker.planning.memory import peak_memory
from stoker.planning.parts import parameter_shapes
from stoker.recipe import Recipe
from stoker.training.optimizer import build_optimizer
from stoker.training.precision import autocast, parameter_dtype
from tests.distributed import run_ranks
from tests.planning.live_bytes import peak_bytes

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
OPTIMIZERS = ["adamw", "muon", "adafactor", "lion"]
PRECISIONS = ["fp32", "bf16", "fp16", "pure_bf16"]


def recipe_of(model: dict[str, Any], layout: dict[str, int] | None = None, **training: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "planned",
            "data": {"sources": [{"name": "none", "paths": ["none"]}]},
            "model": model,
            "layout": layout or {},
            "training": {"steps": 10, "sequence_length": 32, "global_batch_size": 4, "compile": False, **training},
        }
    )


def drawn_recipe(seed: int) -> tuple[Recipe, int]:
    """A recipe and a vocabulary size."""
    draw = random.Random(seed)
    head_size, heads = draw.choice([16, 32]), draw.choice([2, 4, 6])
    batch = draw.choice([2, 4])
    model = {
        "hidden_size": draw.choice([heads * head_size, heads * head_size + 16]),
        "head_size": head_size,
        "layers": draw.choice([1, 2, 4]),
        "heads": heads,
        "kv_heads": draw.choice([count for count in (1, 2, heads) if heads % count == 0]),
        "ffn_hidden_size": draw.choice([96, 160, 384]),
        "activation": draw.choice(["swiglu", "geglu", "gelu"]),
        "norm": draw.choice(["rms", "layer"]),
        "norm_position": draw.choice(["pre", "post", "both"]),
        "qk_norm": draw.choice(["none", "none", "head", "full"]),
        "position": draw.choice(["rope", "rope", "alibi", "learned"]),
        "sliding_window": draw.choice([None, None, 32]),
        "attention_bias": draw.random() < 0.3,
        "ffn_bias": draw.random() < 0.3,
        "attention_softcap": draw.choice([None, None, None, 30.0]),
        "logit_softcap": draw.choice([None, None, 20.0]),
        "tie_embeddings": draw.random() < 0.4,
        "z_loss": draw.choice([0.0, 1e-4]),
        "dropout": draw.choice([0.0, 0.0, 0.1]),
    }
    training = {
        "sequence_length": draw.choice([128, 256]),
        "global_batch_size": batch,
        "micro_batch_size": batch,
        "precision": draw.choice(["fp32", "fp32", *PRECISIONS[1:]]),
        "document_mask": draw.random() < 0.5,
    }
    return recipe_of(model, **training), draw.choice([128, 512, 3000])


def forward_and_backward(recipe: Recipe, vocabulary_size: int) -> int:
    """Peak bytes of one real micro-batch, gradients counted."""
    training = recipe.training
    B, L = training.global_batch_size, training.sequence_length
    model = Decoder(recipe.model, vocabulary_size, L)
    initialise(model, recipe.model, 0)
    model.to(parameter_dtype(training.precision)).train()
    tokens = torch.randint(0, vocabulary_size, (B, L + 1), generator=torch.Generator().manual_seed(0))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    documents = (torch.arange(L) > L // 3).int().expand(B, L).contiguous() if training.document_mask else None

    def step() -> None:
        with autocast(training.precision, CPU):
            losses = model(inputs, targets, documents=documents, samples=torch.arange(B), loss_scale=1 / (B * L))
        losses.loss_sum.backward()

    step()
    model.zero_grad(set_to_none=True)
    return peak_bytes(step)


@pytest.mark.parametrize("seed", range(32))
def test_activations_are_within_a_tenth_of_what_a_pass_holds(seed: int) -> None:
    recipe, vocabulary_size = drawn_recipe(seed)
    planned = peak_memory(recipe, vocabulary_size, recipe.training.global_batch_size, 1, "cpu")
    predicted = planned.total - planned.parameters - planned.optimizer
    assert predicted == pytest.approx(forward_and_backward(recipe, vocabulary_size), rel=0.1)


COMPILED = {
    "llama": {},
    "grouped": {"kv_heads": 2, "ffn_hidden_size": 96},
    "both": {"activation": "geglu", "norm_position": "both", "qk_norm": "head"},
    "post": {"norm_position": "post", "qk_norm": "full"},
    "gpt": {"norm": "layer", "activation": "gelu", "position": "learned"},
    "capped": {"attention_softcap": 30.0},
}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "pure_bf16"])
@pytest.mark.parametrize("shape", COMPILED)
def test_a_compiled_block_keeps_what_is_planned(shape: str, precision: str) -> None:
    model = {"hidden_size": 96, "layers": 1, "heads": 6, "ffn_hidden_size": 256, **COMPILED[shape]}
    recipe = recipe_of(model, precision=precision, compile=True, sequence_length=128)
    block, dtype = Block(recipe.model).to(parameter_dtype(precision)), parameter_dtype(precision)
    x = torch.randn(2, 128, 96, dtype=dtype, requires_grad=True)
    rotary = rotary_angles(torch.arange(128)[None], 16, 1e4, dtype) if recipe.model.position == "rope" else None
    shared = {t.data_ptr() for t in (*block.parameters(), *(rotary or ()))}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in shared:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch._dynamo.reset()
    block.compile(dynamic=False, backend="aot_eager_decomp_partition")  # the compiler's own choice of what to keep
    with (
        functorch_config.patch(RECOMPUTE_POINTWISE),
        autocast(precision, CPU),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        block(x, Shared(rotary))
    torch._dynamo.reset()
    pass_ = planned_memory.pass_of(recipe, 64, 2, "cpu")
    assert activations(recipe.model, pass_).per_block == pytest.approx(sum(kept.values()), rel=0.01)


NEW_MODELS: dict[str, dict[str, Any]] = {
    "switch": {"moe": {"experts": 4, "experts_per_token": 1, "auxiliary_loss": 0.01}},
    "shared": {"moe": {"experts": 8, "experts_per_token": 2, "shared_experts": 1, "expert_ffn_hidden_size": 48}},
    "sigmoid": {
        "moe": {
            "experts": 8,
            "experts_per_token": 3,
            "gate": "sigmoid",
            "normalise_weights": True,
            "first_dense_layers": 1,
            "expert_ffn_hidden_size": 64,
            "auxiliary_loss": 0.01,
        }
    },
    "latent": {
        "latent_attention": {
            "kv_rank": 24,
            "query_rank": 32,
            "nope_head_size": 16,
            "rope_head_size": 8,
            "value_head_size": 16,
        }
    },
    "further": {"mtp_depth": 1},
}
NEW_MODELS["all"] = {**NEW_MODELS["sigmoid"], **NEW_MODELS["latent"], **NEW_MODELS["further"]}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "pure_bf16"])
@pytest.mark.parametrize("name", NEW_MODELS)
def test_activations_of_experts_latents_and_further_tokens_are_within_a_tenth(name: str, precision: str) -> None:
    model = {"hidden_size": 96, "layers": 3, "heads": 4, "ffn_hidden_size": 160, **NEW_MODELS[name]}
    recipe = recipe_of(
        model, sequence_length=256, global_batch_size=4, micro_batch_size=4, precision=precision, document_mask=True
    )
    planned = peak_memory(recipe, 512, 4, 1, "cpu")
    predicted = planned.total - planned.parameters - planned.optimizer
    assert predicted == pytest.approx(forward_and_backward(recipe, 512), rel=0.1)


def test_logits_are_cut_as_the_model_cuts_them() -> None:
    assert planned_memory._LOSS_CHUNK_BYTES == model_loss._CHUNK_BYTES
    assert planned_memory._FEWEST_LOSS_TOKENS == model_loss._FEWEST_TOKENS


UNEVEN = {"hidden_size": 40, "layers": 2, "heads": 5, "kv_heads": 1, "ffn_hidden_size": 99, "attention_bias": True}
"""Rows that two ranks cannot share evenly."""


def held_bytes(recipe: Recipe, vocabulary_size: int, rank: int, store: Any) -> dict[str, int]:
    """Bytes of parameters, gradients and optimizer state that a rank holds after one step."""
    training = recipe.training

    def size(tensor: torch.Tensor) -> int:
        part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        return part.numel() * part.element_size()

    with join_world(recipe.layout, rank, CPU, store, 60) if store else _alone() as world:
        model = Decoder(recipe.model, vocabulary_size, training.sequence_length)
        initialise(model, recipe.model, 0)
        model.to(parameter_dtype(training.precision))
        parallel = apply(model, world)
        held = [one.parameter for one in parallel.held if one.is_parameter]
        optimizer = build_optimizer(parallel.held, training)
        tokens = torch.randint(0, vocabulary_size, (2, training.sequence_length))
        places = torch.arange(training.sequence_length).expand_as(tokens)
        parallel.forward_backward(
            [Inputs(tokens, tokens, places, None, torch.arange(2))],
            step=1,
            seed=0,
            loss_scale=1.0,
            autocast=lambda: autocast(training.precision, CPU),
        )
        gradients = sum(size(p.grad) for p in held if p.grad is not None)
        optimizer.step()
        return {
            "parameters": sum(size(p) for p in held),
            "gradients": gradients,
            "optimizer": sum(
                size(value)
                for state in optimizer.state.values()
                for value in state.values()
                if torch.is_tensor(value)
            ),
        }


def _alone() -> Any:
    from contextlib import nullcontext

    return nullcontext(single_process_world(CPU))


def planned_bytes(recipe: Recipe, vocabulary_size: int) -> dict[str, int]:
    planned = peak_memory(recipe, vocabulary_size, 2, 1, "cpu")
    return {name: getattr(planned, name) for name in ("parameters", "gradients", "optimizer")}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tied", [False, True])
def test_parameters_gradients_and_optimizer_state_are_exact(optimizer: str, precision: str, tied: bool) -> None:
    recipe = recipe_of({**UNEVEN, "tie_embeddings": tied}, optimizer={"name": optimizer}, precision=precision)
    assert planned_bytes(recipe, 301) == held_bytes(recipe, 301, 0, None)


def held_on_rank(rank: int, ranks: int, store: Any, recipe: Recipe) -> dict[str, int]:
    return held_bytes(recipe, 301, rank, store)


@pytest.mark.parametrize(
    "layout", [{"dp_shard": 2}, {"dp_shard": 3}, {"dp_replicate": 2}, {"dp_replicate": 2, "dp_shard": 2}], ids=str
)
@pytest.mark.parametrize(
    ("optimizer", "precision"), [("adamw", "fp32"), ("muon", "pure_bf16"), ("adafactor", "bf16")]
)
def test_sharded_state_is_exact_when_rows_do_not_divide(
    layout: dict[str, int], optimizer: str, precision: str
) -> None:
    recipe = recipe_of(UNEVEN, layout, optimizer={"name": optimizer}, precision=precision, global_batch_size=12)
    held = run_ranks(held_on_rank, recipe.layout.world_size, recipe)
    assert planned_bytes(recipe, 301) == held[0]
    assert all(rank["parameters"] <= held[0]["parameters"] for rank in held)


def test_shapes_are_the_models_own() -> None:
    recipe = recipe_of({**UNEVEN, "position": "learned"})
    model = Decoder(recipe.model, 301, 32)
    assert parameter_shapes(recipe.model, 301, 32) == {n: tuple(p.shape) for n, p in model.named_parameters()}


def test_memory_falls_with_sharding_and_rises_with_the_micro_batch() -> None:
    def total(micro: int, **layout: int) -> int:
        recipe = recipe_of(UNEVEN, layout, global_batch_size=8)
        return peak_memory(recipe, 301, micro, 1, "cpu").total

    assert total(1) < total(2) < total(4)
    sharded = peak_memory(recipe_of(UNEVEN, {"dp_shard": 4}), 301, 1, 1, "cpu")
    whole = peak_memory(recipe_of(UNEVEN), 301, 1, 1, "cpu")
    assert sharded.optimizer < 0.3 * whole.optimizer
    assert Layout(dp_shard=4).world_size == 4
