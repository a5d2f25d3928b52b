"""The JSON schema accepts what the loader accepts, and marks what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from stoker.recipe.loading import load_recipe
from stoker.recipe.showing import schema
from stoker.recipe.template import write_template
from stoker.recipe.yaml_text import parse
from tests.recipe.recipes import SMALL

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").rglob("*.yaml") if path.parent.name != "simulate"
)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


def problems(validator: Draft202012Validator, text: str) -> list[Any]:
    return list(validator.iter_errors(parse(text, "x").value))


def test_a_valid_recipe_has_no_marks(validator: Draft202012Validator) -> None:
    assert problems(validator, SMALL) == []
    assert problems(validator, "$schema: recipe.schema.json\n" + SMALL) == []
    assert problems(validator, SMALL + "checkpoint:\n  # every: 3\n") == []


def test_a_preset_stands_for_the_shape(validator: Draft202012Validator) -> None:
    before, after = SMALL.index("model:"), SMALL.index("training:")
    assert problems(validator, SMALL[:before] + "model: {preset: 1m}\n" + SMALL[after:]) == []
    assert problems(validator, SMALL[:before] + "model: {layers: 1}\n" + SMALL[after:])
    assert problems(validator, SMALL[:before] + "model: {preset: none-such}\n" + SMALL[after:])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps: 10", "stpes: 10"),
        ("steps: 10", "steps: ten"),
        ("steps: 10", "steps: 10\n  precision: fp9"),
        ("steps: 10", "steps: 10\n  optimizer: {name: sgd}"),
        ("weight: 1", "weight: -1"),
    ],
)
def test_a_mistake_is_marked(validator: Draft202012Validator, old: str, new: str) -> None:
    assert problems(validator, SMALL.replace(old, new, 1))


def test_fields_carry_their_descriptions() -> None:
    assert schema()["$defs"]["Training"]["properties"]["steps"]["description"] == "Optimizer steps."


def test_a_new_recipe_has_no_marks(validator: Draft202012Validator, tmp_path: Path) -> None:
    assert problems(validator, write_template(tmp_path / "recipe.yaml", "25m", []).read_text()) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.parent.name + "/" + path.name))
def test_every_example_loads_and_has_no_marks(validator: Draft202012Validator, path: Path) -> None:
    load_recipe(path)
    assert problems(validator, path.read_text(encoding="utf-8")) == []
