"""`stoker data`: every question is answered on the command line, and hostile text stays text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.prepare import prepare
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe.loading import dump_recipe
from stoker.training.origin import write_origin
from tests.data.small_corpus import SOURCES, small_recipe, write_text_files

HOSTILE = "\x1b[31m\u202eevil"
FILE = f"网页 {HOSTILE}.jsonl"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, its corpus prepared at two thresholds, and a run on the first."""
    folder = tmp_path_factory.mktemp("data")
    write_text_files(folder / "text")
    pages = [f"{'<b></b> ' * tags}{HOSTILE} page {tags} of many, which says nothing at all" for tags in range(40)]
    lines = [json.dumps({"text": page}) for page in pages]
    (folder / "text" / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    web = {"name": "web", "paths": [f"text/{FILE}"], "weight": 1}
    sources = [{**source, "weight": 1} for source in SOURCES] + [web]
    near = {"deduplication": {"near": False}}
    prepare(small_recipe(folder, sources=sources, cleaning={"thresholds": {"markup": 0.6}}, **near), Silent())
    (folder / "recipe.yaml").rename(folder / "looser.yaml")
    loaded = small_recipe(folder, sources=sources, **near)
    corpus = prepare(loaded, Silent())
    loaded.run.path.mkdir(parents=True)
    loaded.run.recipe.write_text(dump_recipe(loaded.recipe), encoding="utf-8")
    write_origin(loaded.run, loaded.path, corpus.folder)
    return folder


def asked(*words: object) -> str:
    result = CliRunner().invoke(cli.application, ["data", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    return result.stdout


def answered(*words: object) -> Any:
    result = CliRunner().invoke(cli.application, ["data", *map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


@pytest.mark.parametrize("by", ["kind", "language", "content"])
def test_the_funnel_tells_on_what_each_filter_falls(job: Path, by: str) -> None:
    text = asked("funnel", job / "recipe.yaml", "--by", by)
    assert "markup" in text
    falls = answered("funnel", job / "recipe.yaml", "--by", by)["falls"]
    funnel = answered("funnel", job / "recipe.yaml")
    dropped = sum(one["documents"] for one in funnel if one.get("reason") == "markup")
    if by != "content":  # whose groups may overlap
        assert sum(one["documents"] for one in falls if one["reason"] == "markup") == dropped > 0


def test_a_sample_begins_with_the_most_doubtful_and_shows_their_text(job: Path) -> None:
    rows = answered("sample", job / "recipe.yaml", "markup", "--count", 5)
    values = [row["borderline"]["value"] for row in rows]
    assert values == sorted(values)
    assert all("says nothing at all" in row["excerpt"] for row in rows)
    kept = answered("sample", job / "recipe.yaml", "markup", "--count", 5, "--kept")
    assert [row["borderline"]["value"] for row in kept] == sorted(
        (row["borderline"]["value"] for row in kept), reverse=True
    )
    assert {row["verdict"] for row in kept} <= {"kept", "held_out"}
    text = asked("sample", job / "recipe.yaml", "markup", "--characters", 2000)
    assert r"\x1b[31m\u202eevil page" in text
    assert "filter.markup_share" in text


def test_a_sample_is_of_twenty_unless_told_otherwise(job: Path) -> None:
    everything = answered("sample", job / "recipe.yaml", "markup", "--count", 1000)
    assert len(everything) > 20
    assert answered("sample", job / "recipe.yaml", "markup") == everything[:20]


def test_kept_needs_a_threshold(job: Path) -> None:
    with pytest.raises(BadInput, match="needs a reason with a threshold"):
        asked("sample", job / "recipe.yaml", "exact_duplicate", "--kept")


def test_what_if_says_what_the_other_corpus_is(job: Path) -> None:
    told = answered("what-if", job / "recipe.yaml", "markup=0.6")
    passing = sum(one["documents"] for one in told["changed"] if one["change"] in ("passes", "other reason"))
    compared = answered("diff", job / "recipe.yaml", job / "looser.yaml")
    moved = [one for one in compared["transitions"] if one["before"] == "markup"]
    assert passing == sum(one["documents"] for one in moved) > 0
    assert {one["after"] for one in compared["thresholds"] if one["reason"] == "markup"} == {0.6}
    assert "would pass" in asked("what-if", job / "recipe.yaml", "markup=0.6")
    assert "markup -> " in asked("diff", job / "recipe.yaml", job / "looser.yaml")


@pytest.mark.parametrize("written", ["markup", "markup=much", "markup=nan", "=1"])
def test_a_threshold_is_a_reason_and_a_number(job: Path, written: str) -> None:
    with pytest.raises(BadInput):
        asked("what-if", job / "recipe.yaml", written)


def test_a_document_is_followed_from_its_file_to_its_steps(job: Path) -> None:
    run = job / "runs" / "small"
    step = answered("show", run, "--step", 1)
    first = step["documents"][0]
    (row,) = answered("why", run, first["identifier"], "--steps")
    assert {"step": 1, "sample": first["sample"]}.items() <= row["trainings"][0].items()
    assert "step" in asked("why", run, first["identifier"], "--steps")
    rows = answered("why", run, FILE, "--steps")
    assert all(not row["trainings"] for row in rows if row["split"] != "train")
    one = asked("why", run, f"text/{FILE}:31")
    assert "thresholds" in one
    assert r"网页 \x1b[31m\u202eevil.jsonl:31" in one


def test_steps_are_searched_for_what_they_mention(job: Path) -> None:
    run = job / "runs" / "small"
    every = answered("show", run, "--steps", "1-2", "--characters", 1000)
    word = every[0]["documents"][0]["excerpt"].split()[0][:4]
    found = answered("show", run, "--steps", "1-2", "--mentions", f"/{re.escape(word)}/", "--characters", 1000)
    expected = [[one["document"] for one in step["documents"] if word in one["excerpt"]] for step in every]
    assert [[one["document"] for one in step["documents"]] for step in found] == expected
    assert "nothing in these steps mentions" in asked("show", run, "--steps", "1-2", "--mentions", "zzzz")
    assert answered("show", run, "--step", 2) == answered("show", run, "--steps", "2-2")[0]


def test_the_mixture_in_force_is_told_once_for_as_long_as_it_is(job: Path) -> None:
    run = job / "runs" / "small"
    assert asked("show", run, "--steps", "1-2").count("mixture in force") == 1
    assert asked("show", run, "--step", 2).count("mixture in force") == 1


@pytest.mark.parametrize("words", [(), ("--step", 1, "--steps", "1-2"), ("--steps", "2-1"), ("--steps", "x")])
def test_steps_are_one_or_a_range(job: Path, words: tuple[object, ...]) -> None:
    with pytest.raises(BadInput, match="--step"):
        asked("show", job / "runs" / "small", *words)
