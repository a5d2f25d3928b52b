"""`stoker data why` tells a newcomer why a document was dropped, whatever the reason is."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.filters import RULE_SETS, SIZES
from stoker.data.ledger import Ledger
from stoker.data.ledger.meanings import FAULTS, READING_REASONS, SELECTION_REASONS
from stoker.data.prepare import prepare
from stoker.data.stages.select import VERDICTS
from stoker.progress import Silent
from stoker.recipe.filter_names import RuleSet
from stoker.recipe.loading import load_recipe
from tests.data.every_reason import planted, write_every_reason


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reasons")
    prepare(load_recipe(write_every_reason(folder)), Silent())
    return folder


@pytest.fixture(scope="module")
def rows(job: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of the ledger by reason or verdict."""
    found = defaultdict(list)
    corpus = next((job / "prepared").glob("*/manifest.json")).parent
    for row in Ledger(corpus).rows().collect().to_dicts():
        found[row["reason"] or row["verdict"]].append(row)
    return found


def why(job: Path, identifier: str) -> tuple[str, dict[str, Any]]:
    words = ["data", "why", str(job / "recipe.yaml"), identifier]
    text = CliRunner().invoke(cli.application, words, catch_exceptions=False)
    answer = CliRunner().invoke(cli.application, [*words, "--json"], catch_exceptions=False)
    assert text.exit_code == answer.exit_code == 0
    return text.stdout, json.loads(answer.stdout)[0]


def test_what_was_planted_is_dropped_for_its_reason(rows: dict[str, list[dict[str, Any]]]) -> None:
    for reason in planted():
        assert reason in [row["identifier"] for row in rows[reason]]
    expected = {
        "unassigned",
        "minified",
        "low_quality",
        "most_surprising",
        "over_synthetic_share",
        "not_warc",
        "revisit",
    }
    assert expected | set(SELECTION_REASONS) - {"in_earlier_corpus"} <= set(rows)


def test_every_reason_is_explained_and_its_threshold_named(
    job: Path, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for reason in sorted(set(rows) - {"kept", "held_out"}):
        text, answer = why(job, rows[reason][0]["identifier"])
        head = text.split("\n\n")[0].splitlines()
        assert reason in head[0]
        assert answer["meaning"]
        assert head[1].strip() == answer["meaning"]
        if (told := answer["judgement"]) is not None:
            beyond = told["value"] - told["threshold"]
            assert beyond > 0 if told["drops"] == "above" else beyond < 0
            assert f"{told['measure']} is {told['value']:.4g}" in head[2]
        elif answer["verdict"] == "fault":
            assert answer["detail"] in " ".join(text.split())
    ruled = {rule.reason for rules in RULE_SETS.values() for rule in rules} | {
        "low_quality",
        "unsafe",
        "contaminated",
    }
    for reason in ruled & set(rows):
        assert why(job, rows[reason][0]["identifier"])[1]["judgement"] is not None


def test_no_reason_is_without_a_meaning() -> None:
    assert set(VERDICTS[2:]) == set(SELECTION_REASONS)
    assert set(RULE_SETS) == set(get_args(RuleSet))
    meanings = [rule.meaning for rules in RULE_SETS.values() for rule in rules]
    for told in (
        *meanings,
        *SIZES.values(),
        *FAULTS.values(),
        *READING_REASONS.values(),
        *SELECTION_REASONS.values(),
    ):
        assert len(told.split()) >= 4


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [
        ("markup", "'<b' 16 times"),
        ("links", "'https://example.com' 16 times"),
        ("boilerplate", "'act now' 2 times"),
        ("repeated_lines", "'the same line stands here again and again' 20 times"),
        ("commonest_phrase", "'buy cheap lamps' 48 times"),
        ("repeated_characters", "'000…' 1 time"),
        ("contaminated", "exam.jsonl line 1, question"),
    ],
)
def test_what_in_the_text_counts_is_named(job: Path, identifier: str, shown: str) -> None:
    assert shown in why(job, identifier)[0]


def test_a_near_duplicate_stands_beside_its_original_where_they_differ(
    job: Path, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for reason in ("near_duplicate", "held_out_near_duplicate", "held_out_near_training_text"):
        edited = next(row for row in rows[reason] if row["identifier"].endswith("-edited"))
        text, answer = why(job, edited["identifier"])
        (place,) = answer["differences"]["places"]
        assert place["first"].endswith("unexpectedly") or place["second"].endswith("unexpectedly")
        assert f"[{place['first']}]" in text
        assert f"[{place['second']}]" in text
        assert answer["original"]["similarity"] == pytest.approx(edited["similarity"])
        assert f"Jaccard similarity {edited['similarity']:.3f}" in text
        assert answer["original"]["fate"] in ("kept", "held_out")
    text, answer = why(job, rows["exact_duplicate"][0]["identifier"])
    assert "(identical), which is kept" in text
    assert answer["differences"] is None


def test_what_was_cut_out_of_a_document_is_shown(job: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    cut = [row for row in rows["kept"] if row["repeated_lines"] or row["repeated_substrings"]]
    assert cut
    text, answer = why(job, cut[0]["identifier"])
    assert answer["differences"]["places"][0]["second"] == ""
    assert "characters cut: repeated" in text
    assert "what is left" in text
    sampled = CliRunner().invoke(
        cli.application, ["data", "sample", str(job / "recipe.yaml"), "kept", "--count", "300"]
    )
    assert sampled.stdout.count("characters cut") == len(cut)


def test_without_the_recipe_what_is_missing_is_said(job: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    corpus = next((job / "prepared").glob("*/manifest.json")).parent
    result = CliRunner().invoke(cli.application, ["data", "why", str(corpus), "markup"], catch_exceptions=False)
    assert "name the recipe instead of the corpus" in " ".join(result.stdout.split())
