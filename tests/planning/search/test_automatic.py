"""`layout: auto` is the planner's choice, alike on every rank, and a run keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from stoker.cli.arguments import load
from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recipe.loading import dump_recipe
from tests.recipe.recipes import SMALL


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    content = yaml.safe_load(SMALL)
    content["layout"] = "auto"
    content["training"]["device"] = "cpu"
    content["training"]["global_batch_size"] = 8
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_alone_on_a_processor_it_is_one_process(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert load(recipe, [], choose_layout=True).recipe.layout.world_size == 1


def test_under_a_launcher_it_has_its_ranks_and_all_choose_alike(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    first, second = (load(recipe, [], choose_layout=True) for _ in range(2))
    assert first.recipe.layout.world_size == 4
    assert first.recipe == second.recipe
    assert first.origins["layout.tp"] == "layout: auto"


def test_what_the_recipe_says_of_micro_batch_and_memory_stays(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = ["training.micro_batch_size=1", "training.memory.recompute.name=full"]
    training = load(recipe, said, choose_layout=True).recipe.training
    assert training.micro_batch_size == 1
    assert training.memory.recompute.name == "full"


def test_a_run_keeps_its_layout_while_its_ranks_are_as_many(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    given = load(recipe, ["layout.tp=2", "layout.dp_replicate=2"])
    given.run.path.mkdir(parents=True)
    given.run.recipe.write_text(dump_recipe(given.recipe))
    assert load(recipe, [], choose_layout=True).recipe.layout == given.recipe.layout
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert load(recipe, [], choose_layout=True).recipe.layout.world_size == 2


@pytest.mark.parametrize(
    "said",
    [
        ["training.memory.offload_parameters=true"],
        ["training.deterministic=across_layouts", "training.global_batch_size=4"],
        ["training.optimizer.name=muon"],
        [],
    ],
    ids=str,
)
def test_what_is_chosen_is_a_recipe(recipe: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    chosen = load(recipe, said, choose_layout=True).recipe
    assert Recipe.model_validate(chosen.model_dump()) == chosen
    assert said or not chosen.training.memory.offloads, "a processor's memory is the host's"


def test_a_layout_that_a_changed_recipe_forbids_is_chosen_anew(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    given = load(recipe, ["layout.dp_shard=4"])
    given.run.path.mkdir(parents=True)
    given.run.recipe.write_text(dump_recipe(given.recipe))
    chosen = load(recipe, ["training.global_batch_size=6"], choose_layout=True).recipe
    assert chosen.layout.world_size == 4
    assert Recipe.model_validate(chosen.model_dump()) == chosen


def test_an_override_of_one_dimension_is_a_layout_of_its_own(recipe: Path) -> None:
    loaded = load(recipe, ["layout.tp=2"], choose_layout=True)
    assert loaded.recipe.layout.tp == 2
    assert not loaded.layout_is_open


def test_ranks_that_divide_no_batch_are_refused(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "7919")
    with pytest.raises(BadInput, match="7,919"):
        load(recipe, [], choose_layout=True)


def test_more_processes_than_there_can_be_are_refused(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1000000000000000")
    with pytest.raises(BadInput, match="1,000,000 at most"):
        load(recipe, [], choose_layout=True)
