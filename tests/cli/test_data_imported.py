"""`stoker data` on tokens that others wrote: what the corpus is, and what can be told of it all the same."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from stoker import cli
from stoker.data.corpus import Corpus
from stoker.data.exchange.importing import import_megatron
from stoker.data.exchange.megatron_index import write_dataset
from stoker.data.ledger import Ledger
from stoker.errors import StokerError
from stoker.progress import Silent
from stoker.recipe import Tokenizer
from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.training.origin import write_origin
from tests.data.corpora import byte_document, byte_tokenizer

TEXTS = {
    "web": [f"page {number} of the web, {'and more ' * (number % 7)}" for number in range(60)],
    "code": [f"def f_{number}(): return {number}\n" * (1 + number % 3) for number in range(40)],
}
STEPS = 5


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Megatron's files, a corpus imported from them, a recipe, and a run over it."""
    folder = tmp_path_factory.mktemp("imported")
    byte_tokenizer().save(str(folder / "given.json"))
    for name, texts in TEXTS.items():
        write_dataset(folder / name, [np.asarray(byte_document(text)) for text in texts], 258)
    tokenizer = Tokenizer(path=str(folder / "given.json"))
    import_megatron([folder / name for name in TEXTS], tokenizer, folder / "corpus", 0.1, Silent())
    content = {
        "name": "imported",
        "data": {
            "corpus": "corpus",
            "sources": [{"name": name, "paths": [f"{name}.bin"], "weight": 1} for name in TEXTS],
        },
        "model": {"hidden_size": 16, "layers": 1, "heads": 2, "ffn_hidden_size": 32},
        "training": {"steps": STEPS, "sequence_length": 32, "global_batch_size": 4},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    loaded = load_recipe(folder / "recipe.yaml")
    loaded.run.path.mkdir(parents=True)
    loaded.run.recipe.write_text(dump_recipe(loaded.recipe), encoding="utf-8")
    write_origin(loaded.run, loaded.path, folder / "corpus")
    return folder


def run_of(job: Path) -> Path:
    return job / "runs" / "imported"


def asked(*words: object) -> str:
    result = CliRunner().invoke(cli.application, ["data", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    return " ".join(result.stdout.split())


def answered(*words: object) -> Any:
    result = CliRunner().invoke(cli.application, ["data", *map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_a_step_names_the_documents_of_the_dataset_that_it_trained_on(job: Path) -> None:
    shown = [one for step in answered("show", run_of(job), "--steps", f"1-{STEPS}") for one in step["documents"]]
    assert {one["source"] for one in shown} == set(TEXTS)
    for one in shown:
        source, number = one["identifier"].split(":")
        # a token is a byte, and the first one begins the document
        tokens = byte_document(TEXTS[source][int(number)])[one["start"] : one["stop"]]
        assert one["excerpt"].strip("\ufffd") == bytes(t for t in tokens if t < 256).decode()[:160]
        assert one["file"] == f"{source}.bin"
        assert one["position"] == f"document {number}"


def test_a_document_of_the_dataset_is_followed_to_its_steps(job: Path) -> None:
    run = run_of(job)
    steps = answered("show", run, "--steps", f"1-{STEPS}")
    expected = Counter(
        (one["identifier"], step["step"], one["sample"]) for step in steps for one in step["documents"]
    )
    found: Counter[tuple[str, int, int]] = Counter()
    for name, texts in TEXTS.items():
        rows = answered("why", run, f"{name}.bin", "--steps")
        assert [row["identifier"] for row in rows] == [f"{name}:{number}" for number in range(len(texts))]
        assert [row["tokens"] for row in rows] == [len(byte_document(text)) for text in texts]
        assert [row["bytes"] for row in rows] == [len(text) for text in texts]
        found.update((row["identifier"], one["step"], one["sample"]) for row in rows for one in row["trainings"])
    assert found == expected


def test_every_document_of_the_corpus_is_the_ledgers(job: Path) -> None:
    corpus, ledger = Corpus.open(job / "corpus"), Ledger(job / "corpus")
    assert ledger.funnel() == corpus.manifest["funnel"]
    for name, texts in TEXTS.items():
        for split in ("train", "held_out"):
            store = corpus.store(name, split)
            assert store.document_count > 0
            for index in range(store.document_count):
                row = ledger.document(name, split, index)
                assert row is not None
                text = texts[int(row["identifier"].split(":")[1])]
                assert store.document_tokens(index).tolist() == byte_document(text)


def test_answers_say_that_the_tokens_were_imported_and_from_where(job: Path) -> None:
    for words in (
        ("funnel", job / "recipe.yaml"),
        ("funnel", run_of(job), "--by", "kind"),
        ("why", job / "corpus", "web:3"),
        ("diff", job / "corpus", job / "corpus"),
    ):
        text = asked(*words)
        assert "tokens that were imported from" in text
        assert "cannot know" in text
    assert str(job / "web.bin").replace(" ", "") in asked("funnel", job / "corpus").replace(" ", "")
    assert "near_duplicate" not in asked("funnel", job / "corpus")
    sampled = answered("sample", job / "corpus", "held_out", "--count", 100)
    assert {row["excerpt"] for row in sampled if row["source"] == "web"} < set(TEXTS["web"])
    for words in (
        ("sample", job / "recipe.yaml", "markup"),
        ("sample", job / "recipe.yaml", "markup", "--kept"),
        ("what-if", run_of(job), "markup=0.5"),
    ):
        with pytest.raises(StokerError, match="tokens that were imported"):
            asked(*words)


@pytest.mark.parametrize("harm", ["no ledger", "a damaged ledger", "damaged tokens"])
def test_what_is_damaged_is_imported_again_and_not_prepared(job: Path, tmp_path: Path, harm: str) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(job / "corpus", corpus)
    if harm == "no ledger":  # as corpora were before
        shutil.rmtree(corpus / "ledger")
    elif harm == "a damaged ledger":
        (corpus / "ledger" / "ledger.json").write_text("{")
    else:
        next(corpus.glob("tokens/web/*.tokens")).write_bytes(b"")
    with pytest.raises(StokerError) as caught:
        asked("funnel", corpus)
    assert "stoker data import-megatron" in str(caught.value)
    assert f"--output {corpus}" in str(caught.value)
    assert "stoker prepare" not in str(caught.value)
