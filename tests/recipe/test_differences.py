"""What may change under an existing run, and what is refused with old and new value."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recipe.differences import differences, require_compatible
from stoker.recipe.loading import load_recipe
from tests.recipe.recipes import SMALL, write


def recipe(folder: Path, *overrides: str, text: str = SMALL) -> Recipe:
    return load_recipe(write(folder, text), overrides).recipe


@pytest.mark.parametrize(
    "override",
    [
        "name=other",
        "run=elsewhere",
        "training.steps=99",
        "training.micro_batch_size=2",
        "training.threads=3",
        "training.timeout_seconds=5",
        "checkpoint.every=7",
        "checkpoint.keep_every=7",
        "evaluation.every=7",
        "evaluation.prompts=[a]",
        "telemetry.flush_seconds=0",
        "layout.dp_shard=2",
        "layout.dp_replicate=2",
        "data.workers=3",
        "data.prepared=there",
    ],
)
def test_what_leaves_the_run_the_same_run_may_change(tmp_path: Path, override: str) -> None:
    old, new = recipe(tmp_path), recipe(tmp_path, override)
    (changed,) = require_compatible(old, new)
    assert changed.field == override.partition("=")[0]


@pytest.mark.parametrize(
    ("override", "listed"),
    [
        ("seed=3", "seed: 0 → 3"),
        ("model.layers=3", "model.layers: 2 → 3"),
        ("training.precision=bf16", "training.precision: 'fp32' → 'bf16'"),
        ("training.compile=true", "training.compile: false → true"),
        ("training.device=cpu", "training.device: 'auto' → 'cpu'"),
        ("training.global_batch_size=16", "training.global_batch_size: 8 → 16"),
        ("training.batch_ramp=[{step: 3, global_batch_size: 16}]", "training.batch_ramp: [] → a list of 1"),
        ("training.schedule.warmup_steps=1", "training.schedule.warmup_steps: 0 → 1"),
        ("data.sources.english.weight=9", "data.sources.english.weight: 1 → 9"),
        ("data.sources.1.paths=[there]", "data.sources.中文.paths: [text/中文] → [there]"),
        ("data.sources.english.name=e", "data.sources.english: a section → (not there)"),
        ("tokenizer.vocabulary_size=300", "tokenizer.vocabulary_size: 4096 → 300"),
    ],
)
def test_what_would_make_it_another_run_is_refused(tmp_path: Path, override: str, listed: str) -> None:
    with pytest.raises(BadInput) as caught:
        require_compatible(recipe(tmp_path), recipe(tmp_path, override))
    assert listed in str(caught.value)
    assert "--run FOLDER" in str(caught.value)


def test_all_that_is_refused_is_listed_and_nothing_that_is_free(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        require_compatible(recipe(tmp_path), recipe(tmp_path, "seed=3", "model.layers=3", "training.steps=11"))
    listed = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert listed == ["  seed: 0 → 3", "  model.layers: 2 → 3"]


def test_another_order_of_sources_is_a_difference(tmp_path: Path) -> None:
    old = recipe(tmp_path)
    new = old.model_copy(update={"data": old.data.model_copy(update={"sources": old.data.sources[::-1]})})
    assert [difference.field for difference in differences(old, new)] == ["data.sources (order)"]
    with pytest.raises(BadInput):
        require_compatible(old, new)


def test_the_same_recipe_has_no_differences(tmp_path: Path) -> None:
    assert differences(recipe(tmp_path), recipe(tmp_path)) == ()


def test_a_free_change_says_what_it_means(tmp_path: Path) -> None:
    (changed,) = require_compatible(recipe(tmp_path), recipe(tmp_path, "training.micro_batch_size=2"))
    assert changed.freedom is not None
    assert "not bit for bit" in changed.freedom.note
