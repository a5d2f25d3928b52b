"""Files that a recipe names and that are not there are told with its other mistakes, where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.recipe.loading import load_recipe
from tests.recipe.recipes import SMALL, write


def complaints(recipe: Path, *overrides: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        load_recipe(recipe, overrides, with_files=True)
    return [line.strip() for line in str(caught.value).replace(f"{recipe.parent}/", "").splitlines()[1:]]


def test_every_missing_file_is_told_beside_the_other_mistakes(tmp_path: Path) -> None:
    text = SMALL.replace("layers: 2", "layers: two").replace("model:", "tokenizer: {path: none.json}\nmodel:")
    (tmp_path / "text" / "中文").mkdir(parents=True)
    assert complaints(write(tmp_path, text)) == [
        "recipe.yaml:5:15: data.sources.0.paths.0: text/english does not exist; correct the path (it is relative "
        "to the recipe)",
        "recipe.yaml:8:15: data.sources.1.paths.0: text/中文 is an empty folder (hidden files do not count); put "
        "text there or correct the path",
        "recipe.yaml:10:13: tokenizer.path: there is no file none.json",
        "recipe.yaml:13:3: model.layers: expected a whole number, got 'two'",
    ]


def test_files_folders_and_globs_that_hold_something_are_no_mistake(tmp_path: Path) -> None:
    for name in ("text/english/a/b.txt", "text/中文.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    recipe = write(tmp_path, SMALL.replace("[text/中文]", "['text/*.txt', '**/b.txt']"))
    load_recipe(recipe, with_files=True)
    assert complaints(recipe, "data.sources.english.paths=[text/*.md]") == [
        "override data.sources.english.paths=[text/*.md]: data.sources.0.paths.0: text/*.md matches no file; "
        "correct the pattern (it is relative to the recipe)"
    ]


def test_a_recipe_is_read_without_looking_at_files_unless_asked(tmp_path: Path) -> None:
    assert load_recipe(write(tmp_path)).recipe.name == "small"
