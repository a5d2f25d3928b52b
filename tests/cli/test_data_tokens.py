"""The commands about tokens, as a user calls them: how they fit the text, and their way out and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.corpus import Corpus
from stoker.data.exchange.megatron_index import read_documents, read_index
from tests.data.corpora import byte_tokenizer
from tests.data.small_corpus import small_recipe, write_text_files

SPLITS = ("train", "held_out")
SOURCES = ("english", "chinese", "code")


def stoker(*words: object) -> str:
    result = CliRunner().invoke(cli.application, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def answered(*words: object) -> Any:
    return json.loads(stoker("data", *words, "--json"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a recipe, its prepared corpus, and another tokenizer, one of bytes."""
    folder = tmp_path_factory.mktemp("tokens")
    write_text_files(folder / "text")
    stoker("prepare", small_recipe(folder).path)
    byte_tokenizer().save(str(folder / "bytes.json"))
    return folder


@pytest.fixture(scope="module")
def corpus(job: Path) -> Corpus:
    return Corpus.open(next((job / "prepared").glob("*/manifest.json")).parent)


def test_fertility_is_told_by_source_and_language(job: Path, corpus: Corpus) -> None:
    found = answered("fertility", job / "recipe.yaml")
    assert [one["name"] for one in found["sources"]] == list(SOURCES)
    for one, entry in zip(found["sources"], corpus.manifest["sources"], strict=True):
        train = entry["splits"]["train"]
        tokens = train["tokens"] - 2 * train["documents"]  # without the marks at both ends
        assert one["tokens"] == tokens
        assert one["tokens_per_character"] == pytest.approx(tokens / train["characters"])
        assert one["bytes_per_token"] == pytest.approx(train["bytes"] / tokens)
    assert {one["name"] for one in found["languages"]} >= {"en", "zh"}
    text = stoker("data", "fertility", job / "recipe.yaml", "--longest", 3)
    assert f"{found['unused']:,} of {found['entries']:,} entries" in text
    assert all(f"{one['tokens_per_character']:.3f}" in text for one in found["sources"])


def test_tokenizers_are_compared_on_the_text_of_a_recipe(job: Path) -> None:
    options = (job / "bytes.json", job / "recipe.yaml", "--text", job / "recipe.yaml", "--megabytes", 0.01)
    by_bytes, ours = answered("compare-tokenizers", *options)
    assert (by_bytes["vocabulary_size"], ours["vocabulary_size"]) == (258, 300)
    assert ours["tokens"] < by_bytes["tokens"]
    assert [fit["source"] for fit in ours["fits"]] == list(SOURCES)
    text = stoker("data", "compare-tokenizers", *options)
    assert f"{by_bytes['tokens']:,}" in text
    assert f"{ours['tokens']:,}" in text


@pytest.mark.parametrize("wanted", ["megatron", "parquet"])
def test_every_token_goes_out(job: Path, corpus: Corpus, tmp_path: Path, wanted: str) -> None:
    files = answered("export", job / "recipe.yaml", "--format", wanted, "--output", tmp_path / "out")
    assert {(one["source"], one["split"]) for one in files} == {(a, b) for a in SOURCES for b in SPLITS}
    for one in files:
        store = corpus.store(one["source"], one["split"])
        own = [store.document_tokens(number).tolist() for number in range(store.document_count)]
        path = tmp_path / "out" / f"{one['source']}-{one['split']}"
        if wanted == "parquet":
            assert pq.read_table(path.with_suffix(".parquet"))["tokens"].to_pylist() == own
        else:
            assert [ids.tolist() for ids in read_documents(path, read_index(path))] == own


def test_what_went_out_comes_back_as_the_same_tokens(job: Path, corpus: Corpus, tmp_path: Path) -> None:
    stoker("data", "export", job / "recipe.yaml", "--output", tmp_path / "out")
    prefixes = [tmp_path / "out" / f"{name}-train" for name in SOURCES]
    options = ("--tokenizer", tmp_path / "out" / "tokenizer.json", "--held-out", 0)
    found = answered("import-megatron", *prefixes, *options, "--output", tmp_path / "back")
    back = Corpus.open(tmp_path / "back", verify=True)
    for name, told in zip(SOURCES, found, strict=True):
        before, after = corpus.store(name, "train"), back.store(f"{name}-train", "train")
        assert told["documents"] == told["with_bos"] == told["with_eos"] == before.document_count
        assert np.array_equal(after.document_lengths, before.document_lengths)
        assert np.array_equal(after.read(0, after.token_count), before.read(0, before.token_count))
        assert np.array_equal(after.document_bytes, before.document_bytes)


def test_a_source_whose_licence_nobody_states_is_told_as_that(job: Path) -> None:
    told = answered("licences", job / "recipe.yaml", "data.sources.code.licence=MIT")
    assert [(one["source"], one["licence"], one["stated_by"]) for one in told] == [
        ("english", "not stated", "nobody"),
        ("chinese", "not stated", "nobody"),
        ("code", "MIT", "recipe"),
    ]
