"""A filter that falls on code, formulae or Chinese is told of by the command line; a fair one is not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.prepare import prepare
from stoker.progress import Silent
from tests.data.small_corpus import paragraph, sentence, small_recipe


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of English, some with code or formulae in them, and of Chinese, all of them in order."""
    folder = tmp_path_factory.mktemp("pages")
    draw = random.Random(3)
    english = [sentence(draw, 40) for _ in range(120)]
    code = [f"{sentence(draw, 12)}\n" + "\n".join(_line(draw) for _ in range(8)) for _ in range(40)]
    formulae = [f"{sentence(draw, 12)} $$" + " + ".join(_term(draw) for _ in range(24)) + "$$" for _ in range(40)]
    chinese = [paragraph(draw, 160 if number < 10 else 60) for number in range(70)]
    for name, texts in (("english", english + code + formulae), ("chinese", chinese)):
        draw.shuffle(texts)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    return folder


def _line(draw: random.Random) -> str:
    name = draw.choice("abcdefg")
    return f"    {name}[{draw.randrange(99)}] = {{({draw.randrange(999)}, {draw.randrange(999)}): [{name}]}};"


def _term(draw: random.Random) -> str:
    name = draw.choice(["alpha", "beta", "gamma"])
    return rf"\{name}_{{{draw.randrange(999)}}} x^{{{draw.randrange(999)}}}"


def warned(text: Path, cleaning: dict[str, Any]) -> list[str]:
    sources = [
        {"name": "english", "paths": ["english.jsonl"], "language": "en"},
        {"name": "chinese", "paths": ["chinese.jsonl"], "language": "zh"},
    ]
    prepare(small_recipe(text, sources=sources, cleaning=cleaning), Silent())
    words = ["data", "funnel", str(text / "recipe.yaml")]
    result = CliRunner().invoke(cli.application, words, catch_exceptions=False)
    return [line for line in result.stdout.splitlines() if line.startswith("! ")]


def test_our_own_rules_take_no_more_of_one_than_of_the_others(text: Path) -> None:
    assert warned(text, {}) == []


@pytest.mark.parametrize(
    ("cleaning", "reason", "groups"),
    [
        ({"thresholds": {"symbols": 0.7}}, "symbols", {"formulae", "code"}),
        ({"minimum_characters": 100}, "too_short", {"Chinese, Japanese or Korean", "zh"}),
    ],
)
def test_a_rule_that_falls_on_one_kind_of_text_is_told_of(
    text: Path, cleaning: dict[str, Any], reason: str, groups: set[str]
) -> None:
    lines = warned(text, cleaning)
    assert all(f"`{reason}`" in line for line in lines)
    assert {group for group in groups for line in lines if f"of the documents in {group} that" in line} == groups
