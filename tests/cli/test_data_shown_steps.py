"""`stoker data show` in every layout: the stretches are the tokens that the step was trained on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from stoker import cli
from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.data.feeding.as_recorded import FeedAsRecorded
from stoker.data.showing import mention_pattern
from stoker.recipe import Recipe
from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.record.writing import RecordWriter
from stoker.training.origin import write_origin
from tests.data.corpora import BOS, EOS, build_corpus, byte_document, recipe_for
from tests.record.step_rows import step_row

STEPS = 12
TEXTS = {
    "a": [f"page {number} of the heat death of stars " * (1 + number % 3) for number in range(9)],
    "b": [f"热力学第{number}章说明 heat 的意思 " * (1 + number % 4) for number in range(9)],
}
STAGES = [
    {"until": 4, "weights": {"a": 0.9, "b": 0.1}},
    {"until": 8, "change": "linear"},
    {"weights": {"a": 0.0, "b": 1.0}},
]
RECIPES: Mapping[str, dict[str, Any]] = {
    "one rank": {},
    "data parallel": {"layout": {"dp_shard": 2, "dp_replicate": 2}},
    "context and pipeline parallel": {"layout": {"cp": 2}},
    "several epochs": {"sequence_length": 64},
    "sequences longer than documents": {"sequence_length": 256},
    "a growing batch": {"ramp": True},
    "stages": {"stages": STAGES},
    "given other samples": {"given": {3: [[0, 2], [40, 42]], 5: [[16, 20]], 6: [[16, 18], [16, 18]]}},
}


def recipe_of(corpus: Corpus, wanted: Mapping[str, Any]) -> Recipe:
    training = {"batch_ramp": [{"step": 5, "global_batch_size": 8}]} if wanted.get("ramp") else {}
    recipe = recipe_for(
        corpus, wanted.get("sequence_length", 16), 4, steps=STEPS, weights=[0.5, 0.5], layout=wanted.get("layout")
    )
    content = recipe.model_dump()
    content["training"] |= training
    if "stages" in wanted:
        content["data"]["mixture"] = {"stages": wanted["stages"]}
    return Recipe.model_validate(content)


@pytest.fixture(params=RECIPES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Corpus, Feed]:
    """A run's folder, with a record of its first half, its corpus, and what fed it."""
    documents = {name: {"train": [byte_document(text) for text in own]} for name, own in TEXTS.items()}
    corpus = build_corpus(tmp_path / "c", documents)
    wanted = RECIPES[request.param]
    recipe = recipe_of(corpus, wanted)
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe))
    loaded = load_recipe(tmp_path / "recipe.yaml")
    loaded.run.path.mkdir(parents=True)
    loaded.run.recipe.write_text(dump_recipe(recipe), encoding="utf-8")
    write_origin(loaded.run, loaded.path, corpus.folder)
    given = wanted.get("given", {})
    feed = FeedAsRecorded(corpus, recipe, given)
    writer = RecordWriter(loaded.run.record, 0, 3600.0)
    for step in range(1, STEPS // 2 + 1):
        digest = feed.digest(step)
        writer.append("step", step_row(step, 1, given_samples=given.get(step), batch_digest=digest))
    writer.close()
    return loaded.run.path, corpus, feed


def answered(*words: object) -> Any:
    result = CliRunner().invoke(cli.application, ["data", *map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_the_stretches_of_a_step_are_its_tokens(run: tuple[Path, Corpus, Feed]) -> None:
    folder, _, feed = run
    for shown in answered("show", folder, "--steps", f"1-{STEPS}", "--characters", 9999):
        batch = feed.global_batch(shown["step"])
        tokens = [
            token
            for one in shown["documents"]
            for token in byte_document(TEXTS[one["source"]][one["document"]])[one["start"] : one["stop"]]
        ]
        assert tokens == batch.tokens.flatten().tolist()
        assert shown["digest"] == feed.digest(shown["step"])
        assert shown["recorded_digest"] == (shown["digest"] if shown["step"] <= STEPS // 2 else None)
        ranks = feed.recipe.layout.data_parallel_size
        sequences = batch.samples.tolist()
        own = len(sequences) // ranks
        expected = {(sample, place // own) for place, sample in enumerate(sequences)}
        assert {(one["sample"], one["rank"]) for one in shown["documents"]} == expected
        assert sum(shown["sequences"].values()) == len(sequences)


@pytest.mark.parametrize("wanted", ["heat death", "热力学", "/第[13]章/", "of"])
def test_what_mentions_something_is_found_and_nothing_else(run: tuple[Path, Corpus, Feed], wanted: str) -> None:
    folder, corpus, _ = run
    pattern, decoder = mention_pattern(wanted), Tokenizer.from_file(str(corpus.tokenizer_path))
    every = answered("show", folder, "--steps", f"1-{STEPS}")
    found = answered("show", folder, "--steps", f"1-{STEPS}", "--mentions", wanted)
    hits = 0
    for shown, only in zip(every, found, strict=True):
        expected = Counter()
        for one in shown["documents"]:
            ids = byte_document(TEXTS[one["source"]][one["document"]])[one["start"] : one["stop"]]
            if pattern.search(decoder.decode([i for i in ids if i not in (BOS, EOS)])):
                expected[one["sample"], one["source"], one["document"], one["start"]] += 1
        seen = Counter((one["sample"], one["source"], one["document"], one["start"]) for one in only["documents"])
        assert seen == expected
        hits += expected.total()
    assert hits > 0


def test_text_says_when_a_step_was_given_other_samples(run: tuple[Path, Corpus, Feed]) -> None:
    folder, _, feed = run
    text = CliRunner().invoke(cli.application, ["data", "show", str(folder), "--step", "3"]).stdout
    assert "(the record's)" in text
    assert ("other sequences than the recipe's: 0 to 1, 40 to 41" in text) == (
        feed.samples(3).tolist() == [0, 1, 40, 41]
    )
