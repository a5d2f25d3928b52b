"""Models of quality in a preparation: what is measured, what is dropped, and what another model changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.data.fingerprint import take_inputs
from stoker.data.ledger import Ledger
from stoker.data.ledger.what_if import what_if
from stoker.data.prepare import prepare
from stoker.data.quality.character_training import Settings as CharacterSettings
from stoker.data.quality.character_training import train_characters
from stoker.data.quality.training import Settings, train_classifier
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe import Cleaning
from stoker.recipe.files import missing_files
from tests.data.small_corpus import folder_bytes, paragraph, sentence, small_recipe, write_text_files

_DOCUMENTS = 120


def write_models(folder: Path) -> None:
    """A classifier that prefers some of the words and characters to others, and a model of characters."""
    draw = random.Random(5)
    texts = [sentence(draw) for _ in range(300)] + [paragraph(draw) for _ in range(300)]
    liked = [text for text in texts if text.count("the") + text.count("天") * 2 > 2]
    train_classifier(liked, [text for text in texts if text not in liked], Settings()).classifier.write(
        folder / "quality.model"
    )
    train_characters(texts, CharacterSettings()).model.write(folder / "characters.model")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    write_text_files(folder / "text", documents=_DOCUMENTS)
    write_models(folder)
    return folder


def rows_of(text: Path, cleaning: dict[str, Any], **data: Any) -> tuple[Ledger, list[dict[str, Any]]]:
    cleaning = {"filters": False, "languages": [], **cleaning}
    corpus = prepare(small_recipe(text, cleaning=cleaning, deduplication={"near": False}, **data), Silent())
    ledger = Ledger(corpus.folder)
    return ledger, ledger.rows().collect().to_dicts()


def test_of_each_source_the_share_that_scores_lowest_is_dropped(text: Path) -> None:
    _, rows = rows_of(text, {"quality": {"model": "quality.model", "keep_best": 0.75}})
    for source, language in (("english", "en"), ("chinese", "zh")):
        own = [row for row in rows if row["source"] == source and row["measure.quality.score"] is not None]
        dropped = [row for row in own if row["reason"] == "not_among_best"]
        assert len(dropped) == int(0.25 * len(own)), language
        assert all(row["stage"] == "selection" for row in dropped)
        worst = max(row["measure.quality.score"] for row in dropped)
        kept = [row["measure.quality.score"] for row in own if row["verdict"] in ("kept", "held_out")]
        assert kept
        assert min(kept) >= worst
    assert all(row["measure.quality.score"] is None for row in rows if row["source"] == "code")
    assert {row["reason"] for row in rows if row["source"] == "code"} == {None}


def test_a_minimum_drops_and_another_one_can_be_asked_about(text: Path) -> None:
    ledger, rows = rows_of(text, {"quality": {"model": "quality.model", "minimum": 0.5}})
    scored = [row for row in rows if row["measure.quality.score"] is not None]
    low = [row for row in scored if row["measure.quality.score"] < 0.5]
    assert 0 < len(low) < len(scored)
    assert {(row["stage"], row["reason"]) for row in low} == {("quality", "low_quality")}
    assert all(row["reason"] != "low_quality" for row in scored if row not in low)
    passes = sum(row["measure.quality.score"] >= 0.2 for row in low)
    assert what_if(ledger, {"low_quality": 0.2}).total("passes")[0] == passes > 0


def test_both_tails_of_perplexity_are_dropped_within_kind_and_language(text: Path) -> None:
    tails = {"model": "characters.model", "drop_lowest": 0.1, "drop_highest": 0.2}
    _, rows = rows_of(text, {"perplexity": tails})
    measure = "measure.perplexity.bits_per_character"
    for kind, languages in (("prose", {"zh", "en"}), ("code", {None})):
        for language in languages:
            own = [row for row in rows if (row["kind"], row["language"]) == (kind, language) and row[measure]]
            bits = np.asarray([row[measure] for row in own])
            low, high = (
                np.asarray([row["reason"] == reason for row in own])
                for reason in ("least_surprising", "most_surprising")
            )
            assert (low.sum(), high.sum()) == (int(0.1 * len(own)), int(0.2 * len(own)))
            assert bits[low].max() <= bits[~low].min()
            assert bits[high].min() >= bits[~high].max()
    manifest = prepare(
        small_recipe(
            text,
            cleaning={"filters": False, "languages": [], "perplexity": tails},
            deduplication={"near": False},
        ),
        Silent(),
    ).manifest
    told = {(cut["reason"], cut["group"]): cut["dropped"] for cut in manifest["shares_dropped"]}
    assert told["most_surprising", "code unknown"] == 2
    assert told["most_surprising", "prose zh"] == sum(
        row["reason"] == "most_surprising" and row["language"] == "zh" for row in rows
    )


def test_workers_change_no_byte(text: Path, tmp_path: Path) -> None:
    cleaning = {
        "quality": {"model": "quality.model", "keep_best": 0.6},
        "perplexity": {"model": "characters.model", "drop_highest": 0.1},
    }
    found = [
        prepare(
            small_recipe(text, cleaning=cleaning, workers=workers, prepared=str(tmp_path / str(workers))), Silent()
        )
        for workers in (1, 2)
    ]
    assert folder_bytes(found[0].folder) == folder_bytes(found[1].folder)


def test_a_model_is_known_by_its_content(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text", documents=10)
    write_models(tmp_path)

    def fingerprint(model: str) -> str:
        recipe = small_recipe(tmp_path, cleaning={"quality": {"model": model, "minimum": 0.5}})
        return take_inputs(recipe, 1, Silent()).fingerprint

    first = fingerprint("quality.model")
    (tmp_path / "moved.model").write_bytes((tmp_path / "quality.model").read_bytes())
    assert fingerprint("moved.model") == first
    (tmp_path / "quality.model").write_bytes(b"another")
    assert fingerprint("quality.model") != first
    with pytest.raises(BadInput, match=r"data\.cleaning\.quality\.model: .*none\.model does not exist"):
        fingerprint("none.model")


def test_shares_alone_are_no_reason_to_read_again(text: Path) -> None:
    def reading(**quality: Any) -> dict[str, Any]:
        recipe = small_recipe(text, cleaning={"quality": {"model": "quality.model", **quality}})
        return take_inputs(recipe, 1, Silent()).reading

    assert reading(keep_best=0.5) == reading(keep_best=0.7)
    assert reading(minimum=0.5) != reading(minimum=0.7)


def test_a_missing_model_is_told_before_anything_is_read(tmp_path: Path) -> None:
    tree = {"data": {"cleaning": {"perplexity": {"model": "none.model"}}}}
    (mistake,) = missing_files(tree, tmp_path, lambda place: "recipe.yaml:1")
    assert "data.cleaning.perplexity.model" in str(mistake)


@pytest.mark.parametrize(
    "section",
    [{"quality": {"keep_best": 0.5}}, {"quality": {"minimum": 0.5}}, {"perplexity": {"drop_lowest": 0.1}}],
)
def test_a_share_without_a_model_is_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="without `model`"):
        Cleaning.model_validate(section)
