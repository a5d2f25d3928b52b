"""Every document has a history that can be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.data.corpus import Corpus
from stoker.data.ledger import LEDGER_SCHEMA, Ledger
from stoker.data.licences import licences
from stoker.data.prepare import prepare
from stoker.errors import StokerError
from stoker.progress import Silent
from tests.data.small_corpus import small_recipe, write_text_files


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("ledger")
    write_text_files(folder / "text")
    return prepare(small_recipe(folder), Silent())


def test_rows_follow_the_schema_in_reading_order(corpus: Corpus) -> None:
    rows = Ledger(corpus.folder).rows().collect()
    assert rows.columns[: len(LEDGER_SCHEMA)] == LEDGER_SCHEMA.names
    assert all(name.startswith("measure.") for name in rows.columns[len(LEDGER_SCHEMA) :])
    assert rows["source"].unique(maintain_order=True).to_list() == ["english", "chinese", "code"]
    assert rows.filter(source="chinese")["position"].to_list() == [f"line {number}" for number in range(1, 122)]
    assert rows["verdict"].unique().sort().to_list() == ["dropped", "fault", "held_out", "kept"]


def test_why_tells_a_document_by_its_identifier_and_a_file_by_its_name(corpus: Corpus) -> None:
    ledger = Ledger(corpus.folder)
    (row,) = ledger.why("text/chinese.txt:121")
    assert (row["verdict"], row["reason"], row["duplicate_of"]) in [
        ("dropped", "exact_duplicate", "text/chinese.txt:1"),
        ("dropped", "held_out_exact_duplicate", "text/chinese.txt:1"),
    ]
    assert len(ledger.why("text/chinese.txt")) == 121
    (fault,) = [row for row in ledger.why("text/english.jsonl") if row["verdict"] == "fault"]
    assert fault["sha256"] is None
    assert "expected a JSON object" in fault["detail"]
    assert ledger.why("no such thing") == []


def test_a_document_of_a_split_is_found_by_its_index(corpus: Corpus) -> None:
    ledger = Ledger(corpus.folder)
    lengths = corpus.store("chinese", "train").document_lengths
    for index in (0, 7, len(lengths) - 1):
        row = ledger.document("chinese", "train", index)
        assert row is not None
        assert (row["verdict"], row["split"], row["document"]) == ("kept", "train", index)
        assert row["tokens"] == lengths[index]
    assert ledger.document("chinese", "train", len(lengths)) is None
    assert set(ledger.documents("chinese", "train", [3, 4, 3])) == {3, 4}


def test_a_sample_is_spread_over_the_rows_with_a_reason(corpus: Corpus) -> None:
    ledger = Ledger(corpus.folder)
    kept = ledger.sample("kept", 5)
    assert len(kept) == 5
    assert len({row["identifier"] for row in kept}) == 5
    assert {row["source"] for row in kept} >= {"english", "chinese"}
    assert [row["reason"] for row in ledger.sample("empty", 5)] == ["empty"]
    assert ledger.sample("kept", 0) == []


def test_the_funnel_of_the_ledger_is_the_manifests(corpus: Corpus) -> None:
    assert Ledger(corpus.folder).funnel() == corpus.manifest["funnel"]
    assert corpus.manifest["falls"] == []
    stages = [entry["stage"] for entry in corpus.manifest["funnel"] if entry["source"] == "english"]
    assert stages[:3] == ["read", "fault", "reading"]
    assert stages[-3:] == ["exact_duplicate", "near_duplicate", "kept"]


def test_a_folder_without_a_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(StokerError, match="holds no ledger"):
        Ledger(tmp_path)


def test_licences_come_from_the_recipe_the_package_or_nobody(tmp_path: Path) -> None:
    packages = [{"package": "stdlib", "files": ["json/*.py"]}, {"package": "numpy", "files": ["*.py"]}]
    sources = [
        {"name": "packages", "packages": packages},
        {"name": "own", "paths": ["x.txt"], "licence": "CC-BY-4.0"},
        {"name": "found", "paths": ["y.txt"]},
    ]
    lines = licences(small_recipe(tmp_path, sources=sources))
    assert [(line.source, line.origin, line.stated_by) for line in lines] == [
        ("packages", "stdlib", "package"),
        ("packages", "numpy", "package"),
        ("own", "x.txt", "recipe"),
        ("found", "y.txt", "nobody"),
    ]
    assert [line.licence for line in lines][::2] == ["PSF-2.0", "CC-BY-4.0"]
    assert "BSD" in lines[1].licence
    assert lines[3].licence == "not stated"
