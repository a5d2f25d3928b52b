"""`stoker verify` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recipe.recipes import write
from tests.test_cli import stoker


@pytest.mark.slow
def test_a_layout_agrees_and_the_answer_says_how_closely(tmp_path: Path) -> None:
    result = stoker("verify", write(tmp_path), "--layout", "tp=2", "--steps", "1", "--json", timeout=250)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert "vocabulary 4096 → 64" in answer["smaller"]
    (found,) = answer["results"]
    assert (found["description"], found["ranks"], found["agrees"], found["error"]) == ("tp=2", 2, True, None)
    assert found["worst"]["fp64"]["gradient"]["error"] < 1e-12
    assert found["worst"]["fp32"]["gradient"]["error"] < 1e-5
    assert [entry.name for entry in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--layout", "tq=2"), "expected NAME=VALUE"),
        (("--layout", "pp=4"), "needs at least 4 layers"),
        (("--precision", "fp8"), "expected one of fp64"),
    ],
)
def test_what_cannot_be_verified_is_bad_input(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    result = stoker("verify", write(tmp_path), *arguments, timeout=120)
    assert result.returncode == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr
