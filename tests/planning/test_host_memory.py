"""Copies of the state in host memory: as large as those really taken, and refused where they do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.checkpoint.parts import pieces_of
from stoker.checkpoint.saving import whole_state
from stoker.checkpoint.state import allocate_state
from stoker.checkpoint.tensor_file import lay_out
from stoker.errors import BadInput
from stoker.model import Decoder
from stoker.parallel import Settings, apply, single_process_world
from stoker.planning import make_plan, require_fits
from stoker.planning.host_memory import host_memory, state_bytes_of_rank
from stoker.recipe import Recipe
from stoker.training.optimizer import build_optimizer
from stoker.training.precision import parameter_dtype
from tests.planning.machines import GIB, machine
from tests.planning.test_memory import recipe_of

_MODEL = {"hidden_size": 64, "layers": 2, "heads": 4, "ffn_hidden_size": 160}


def _recipe(layout: dict[str, Any] | None = None, **recovery: int) -> Recipe:
    content = recipe_of(_MODEL, layout or {}).model_dump()
    content["recovery"].update(recovery)
    return Recipe.model_validate(content)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "pure_bf16"])
@pytest.mark.parametrize("optimizer", ["adamw", "lion", "muon", "adafactor"])
def test_a_copy_is_as_large_as_planned(optimizer: str, precision: str) -> None:
    content = recipe_of(_MODEL).model_dump()
    content["training"].update({"optimizer": {"name": optimizer}, "precision": precision})
    recipe = Recipe.model_validate(content)
    with torch.device("meta"):
        plain = Decoder(recipe.model, 512, recipe.training.sequence_length).to(parameter_dtype(precision))
    model = apply(plain, single_process_world(torch.device("cpu")), Settings(seed=0))
    built = build_optimizer(model.held, recipe.training)
    allocate_state(built)
    taken = lay_out([piece for piece, _ in pieces_of(whole_state(model.held, built))]).bytes
    assert state_bytes_of_rank(recipe, 512, 0) == pytest.approx(taken, rel=0.05)


def test_one_copy_is_saved_from_two_are_kept_and_those_of_gradients_come_on_top() -> None:
    on_cuda = machine(device="cuda", devices=1)
    plain = host_memory(_recipe(), 512, on_cuda)
    kept = host_memory(_recipe(copy_every=1), 512, on_cuda)
    gradients = host_memory(_recipe(copy_every=1, copy_gradients_every=1), 512, on_cuda)
    state = state_bytes_of_rank(_recipe(), 512, 0) / GIB
    assert (plain.saved_from, plain.copies, plain.total) == (state, 0, state)
    assert (kept.saved_from, kept.copies, kept.total) == (0, 2 * state, 2 * state)
    assert gradients.gradient_copies == pytest.approx(2 / 3 * state, rel=1e-3)


def test_every_rank_of_a_node_has_its_own_and_those_of_others_do_not_count() -> None:
    node = machine(device="cuda", devices=2)
    four = _recipe({"dp_replicate": 4}, copy_every=10)
    assert host_memory(four, 512, node).total == pytest.approx(
        2 * host_memory(_recipe(copy_every=10), 512, node).copies
    )


def test_copies_that_do_not_fit_are_warned_of_and_refused_with_what_would() -> None:
    recipe = _recipe(copy_every=1)
    needed = round(host_memory(recipe, 512, machine(device="cuda")).total * GIB)
    little = machine(device="cuda", host_available_bytes=needed * 2 // 3)
    with pytest.raises(BadInput, match=r"two copies of the state .* of host memory.*recovery.copy_every=0"):
        require_fits(recipe, 512, little)
    (warning,) = [line for line in make_plan(recipe, 512, little).warnings if "host memory" in line]
    assert "recovery.copy_every=0" in warning
    require_fits(_recipe(), 512, little)


def test_on_a_processor_copies_take_of_the_same_memory() -> None:
    plain, kept = (make_plan(recipe, 512, machine()) for recipe in (_recipe(), _recipe(copy_every=5)))
    more = kept.needed_memory_gib - plain.needed_memory_gib
    assert more == pytest.approx(plain.host_memory_gib.saved_from)
    tight = machine(available_bytes=round(plain.needed_memory_gib * GIB))
    require_fits(_recipe(), 512, tight)


def test_a_plan_says_what_the_node_needs() -> None:
    text = str(make_plan(_recipe(copy_every=1), 512, machine()))
    assert "host      two copies of the state (3.66 MiB) of a node's memory; 64.0 GiB free" in text
