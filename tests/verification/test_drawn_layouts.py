"""Layouts drawn over all dimensions train the same model: a fixed draw, and one that every commit makes anew.

24 layouts of a model with experts cover every pair of dimensions (`test_drawing.py`); nine models share them
out, so that all is covered in one run. `make verify` runs 24 for each model.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.layout import Layout
from stoker.layout.validity import problems
from stoker.recipe.loading import load_recipe
from stoker.verification import shrinking, subject_of, verify
from stoker.verification.drawing import draw
from tests.verification.this_commit import commit_number

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "examples" / "verify").glob("*.yaml"))
WITH_EXPERTS = {"experts-softmax", "experts-sigmoid"}
"""Only experts can be divided by `ep`."""
RANKS = int(os.environ.get("STOKER_VERIFY_RANKS", "8"))


def _share(path: Path, seed: int) -> list[Layout]:
    """Which of the 24 layouts of a draw a model verifies: one with experts those with `ep`, others the others.

    Each layout has one of the models that it can train.
    """
    drawn = draw(
        subject_of(load_recipe(ROOT / "examples" / "verify" / "experts-softmax.yaml").recipe), 24, RANKS, seed
    )
    shapes = {one: subject_of(load_recipe(one).recipe).shape for one in RECIPES}
    share: list[Layout] = []
    for place, layout in enumerate(drawn):
        alike = [one for one in RECIPES if (one.stem in WITH_EXPERTS) == (layout.ep > 1)]
        possible = [one for one in alike if not problems(layout, shapes[one])]
        if possible[place % len(possible)] == path:
            share.append(layout)
    return share


@pytest.mark.slow
@pytest.mark.parametrize("which", ["fixed", "of this commit"])
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_drawn_layouts_train_the_model_of_one_process(path: Path, which: str) -> None:
    recipe = load_recipe(path).recipe
    subject = subject_of(recipe)
    seed = 0 if which == "fixed" else commit_number()
    layouts = _share(path, seed)
    if which != "fixed":
        layouts = layouts[:1]
    if not layouts:
        return  # this draw has given all that it can train to others
    found = verify(shrinking.smaller(subject, layouts), layouts, steps=2, precision="fp64")
    different = [f"{result.layout}: {result.first}" for result in found if not result.agrees]
    assert not different, f"seed {seed}: " + "\n".join(different)
