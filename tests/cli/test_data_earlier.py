"""Text of earlier corpora is kept out, more is added later, and what came and went is told: command by command."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stoker import cli

WORDS = [
    "lamp", "stone", "river", "cloud", "paper", "green", "seven", "window", "garden", "engine", "spoon", "needle",
    "castle", "thunder", "mirror", "velvet", "copper", "island", "ladder", "market", "orange", "pencil", "silver",
]  # fmt: skip


def page(number: int) -> str:
    """Sixty words that no other page has in this order."""
    return "The " + " ".join(random.Random(number).choices(WORDS, k=60))


def write_recipe(folder: Path, name: str, files: list[str], **deduplication: Any) -> Path:
    content = {
        "name": name,
        "data": {
            "sources": [{"name": "web", "paths": files, "id_field": "id"}],
            "workers": 1,
            "held_out": 0.02,
            "reuse": True,
            "cleaning": {"filters": False},
            "deduplication": {"keep_signatures": True, **deduplication},
        },
        "tokenizer": {"vocabulary_size": 300},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2, "ffn_hidden_size": 32},
        "training": {"steps": 2, "sequence_length": 32, "global_batch_size": 2},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder / f"{name}.yaml"


def write_pages(path: Path, pages: dict[str, str]) -> None:
    path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in pages.items()))


def run(*words: object) -> str:
    result = CliRunner().invoke(cli.application, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def answered(*words: object) -> Any:
    return json.loads(run("data", *words, "--json"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    old = {f"old-{n}": page(n) for n in range(30)}
    edited = {f"edited-{n}": page(n).replace("The ", "One unheard ", 1) for n in range(5)}
    write_pages(folder / "old.jsonl", old)
    write_pages(folder / "new.jsonl", {**edited, **{f"new-{n}": page(100 + n) for n in range(30)}})
    write_pages(folder / "more.jsonl", {"again": page(105), **{f"more-{n}": page(200 + n) for n in range(10)}})
    run("prepare", write_recipe(folder, "first", ["old.jsonl"]))
    earlier = str(next((folder / "prepared").glob("*/manifest.json")).parent)
    run("prepare", write_recipe(folder, "second", ["new.jsonl"], against=[earlier]))
    run("prepare", write_recipe(folder, "third", ["new.jsonl", "more.jsonl"], against=[earlier]))
    return folder


def test_what_is_in_an_earlier_corpus_is_dropped_and_shown_beside_it(job: Path) -> None:
    gone = answered("sample", job / "second.yaml", "in_earlier_corpus")
    assert {row["identifier"] for row in gone} == {f"edited-{n}" for n in range(5)}
    (told,) = answered("why", job / "second.yaml", "edited-2")
    assert told["original"]["identifier"] == "old-2"
    (place,) = told["differences"]["places"]
    assert place["first"].split() == ["One", "unheard"]
    assert place["second"] == "The"
    text = run("data", "why", job / "second.yaml", "edited-2")
    assert "repeats old-2 of" in text
    assert f"Jaccard similarity {told['similarity']:.3f}" in text


def test_text_added_later_changes_no_fate_of_what_was_there(job: Path) -> None:
    found = answered("diff", job / "second.yaml", job / "third.yaml")
    before = sum(one["before"] for one in found["funnel"] if one["stage"] == "read")
    assert found["unchanged"] == before == 35
    assert {(one["before"], one["after"]) for one in found["transitions"]} <= {
        ("absent", "kept"),
        ("absent", "held_out"),
        ("absent", "near_duplicate"),
        ("absent", "exact_duplicate"),
        ("absent", "held_out_exact_duplicate"),
    }
    assert sum(one["documents"] for one in found["transitions"]) == 11
    (again,) = answered("why", job / "third.yaml", "again")
    assert again["duplicate_of"] == "new-5"
    assert "came into training" in run("data", "diff", job / "second.yaml", job / "third.yaml")
    assert "went out of training" in run("data", "diff", job / "third.yaml", job / "second.yaml")
