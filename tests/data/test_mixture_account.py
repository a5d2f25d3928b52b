"""What `stoker data mixture` says is what the feed gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.data.mixture_account import account
from stoker.data.repetition import effective_tokens
from stoker.recipe import Recipe
from tests.data.corpora import build_corpus, recipe_for

L, BATCH, STEPS = 8, 4, 60


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    lengths = {"a": [20] * 30, "b": [6, 30] * 4, "c": [9] * 10}
    return build_corpus(
        tmp_path / "corpus",
        {name: {"train": [[1] * size for size in sizes], "held_out": []} for name, sizes in lengths.items()},
    )


def recipe_with(corpus: Corpus, mixture: dict[str, Any]) -> Recipe:
    content = recipe_for(corpus, L, BATCH, steps=STEPS).model_dump(mode="json")
    content["data"]["mixture"] = mixture
    return Recipe.model_validate(content)


STAGED: dict[str, Any] = {
    "stages": [
        {"until": 20, "weights": {"a": 0.9, "b": 0.1}},
        {"until": 40, "change": "linear", "weights": {"a": 0.2, "b": 0.8}},
        {"weights": {"a": 0.5, "b": 0.5}, "documents": {"minimum_tokens": 10, "sources": ["b"]}},
    ]
}


def test_tokens_drawn_are_those_that_the_feed_gives_in_each_stage(corpus: Corpus) -> None:
    recipe = recipe_with(corpus, STAGED)
    found, feed = account(corpus, recipe), Feed(corpus, recipe)
    assert [(stage.first_step, stage.last_step, stage.linear) for stage in found.stages] == [
        (1, 20, False), (21, 40, True), (41, 60, False)]  # fmt: skip
    for stage in found.stages:
        given = dict.fromkeys("abc", 0)
        for step in range(stage.first_step, stage.last_step + 1):
            for span in feed.spans(step):
                given[span.source] += span.stop - span.start
        assert {one.source: one.drawn for one in stage.sources} == given
    assert {one.source: one.drawn for one in found.sources} == {
        name: sum(own.drawn for stage in found.stages for own in stage.sources if own.source == name)
        for name in "abc"
    }
    assert found.tokens == STEPS * BATCH * L == sum(one.drawn for one in found.sources)


def test_what_stages_add_is_what_the_whole_run_is_worth(corpus: Corpus) -> None:
    found = account(corpus, recipe_with(corpus, STAGED))
    for one in found.sources:
        added = sum(own.effective for stage in found.stages for own in stage.sources if own.source == one.source)
        assert added == pytest.approx(one.effective)
        assert one.effective == (effective_tokens(one.tokens, one.drawn) if one.drawn else 0)


def test_what_is_most_likely_not_meant_is_warned_of(corpus: Corpus) -> None:
    mixture = {"stages": [{"until": 100, "weights": {"b": 1.0}}, {"weights": {"a": 1.0}}]}
    warnings = account(corpus, recipe_with(corpus, mixture)).warnings
    assert warnings == (
        "a is never drawn",
        "b is passed over 13.3 times; up to 4 epochs repeats are nearly as good as new text",
        "c is never drawn",
        "stage 2 has no step in a run of 60 steps",
    )
    chosen = {"stages": [{"weights": {"b": 1.0}, "documents": {"minimum_tokens": 10}}]}
    told = account(corpus, recipe_with(corpus, chosen)).warnings
    assert "stage 1 draws 16.0 times the tokens of the documents of at least 10 tokens in b" in told


def test_rules_stand_side_by_side(corpus: Corpus) -> None:
    rules = account(corpus, recipe_with(corpus, {})).rules
    assert list(rules) == ["given", "tokens", "temperature, alpha 0.3", "unimax, 4 epochs"]
    assert rules["given"] == rules["tokens"] == {"a": 600 / 834, "b": 144 / 834, "c": 90 / 834}
    # 1,920 tokens: c and b are allowed 360 and 576, a has the rest
    assert rules["unimax, 4 epochs"] == pytest.approx({"a": 984 / 1920, "b": 576 / 1920, "c": 360 / 1920})
    assert all(sum(shares.values()) == pytest.approx(1) for shares in rules.values())


def test_the_account_is_json(corpus: Corpus) -> None:
    written = json.loads(json.dumps(account(corpus, recipe_with(corpus, STAGED)).as_json()))
    assert written["stages"][2]["documents"] == {"b": {"minimum": 10, "maximum": None}}
    assert written["sources"][1]["price"] > 0
