"""What saves memory is refused where it could not work, with what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.errors import BadInput
from stoker.recipe.loading import load_recipe
from stoker.recipe.memory import OPERATIONS, Recompute
from tests.recipe.recipes import SMALL


def _load(tmp_path: Path, *overrides: str) -> Any:
    path = tmp_path / "recipe.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return load_recipe(path, overrides, with_files=False).recipe.training.memory


RELEASE, CLIP = "training.memory.release_gradients=true", "training.gradient_clip=null"
RECOMPUTE = "training.memory.recompute"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([RELEASE], "needs training.gradient_clip=null"),
        ([RELEASE, CLIP, "training.precision=fp16"], "needs training.precision=bf16"),
        ([RELEASE, CLIP, "training.optimizer.name=muon"], "optimizer.name adamw or lion, but it is muon"),
        ([RELEASE, CLIP, "training.micro_batch_size=1"], "a rank has 8 in a step; set training.micro_batch_size=8"),
        (["training.memory.offload_optimizer=true", "training.optimizer.name=adafactor"], "but it is adafactor"),
        ([f"{RECOMPUTE}.name=budget"], "needs budget_mib"),
        ([f"{RECOMPUTE}.budget_mib=3"], "budget_mib needs name: budget, but name is none"),
        ([f"{RECOMPUTE}.every=2"], "every needs name: full, but name is none"),
        ([f"{RECOMPUTE}.operations=[attention]"], "operations needs name: operations"),
        ([f"{RECOMPUTE}.name=operations", f"{RECOMPUTE}.operations=[norms]"], "attention_projections"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        _load(tmp_path, *overrides)
    assert message in str(refused.value)


def test_a_recipe_says_what_each_layer_recomputes(tmp_path: Path) -> None:
    assert _load(tmp_path).recompute.of_layer(0) is None
    every_second = _load(tmp_path, f"{RECOMPUTE}.name=full", f"{RECOMPUTE}.every=2").recompute
    assert [every_second.of_layer(layer) for layer in range(3)] == [
        frozenset(OPERATIONS),
        None,
        frozenset(OPERATIONS),
    ]
    some = Recompute(name="operations", operations=("attention",))
    assert some.of_layer(5) == {"attention"}
    assert _load(tmp_path, RELEASE, CLIP).release_gradients
