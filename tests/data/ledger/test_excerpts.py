"""The text of a document is read where it lies, and only where it is still the same."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stoker.data.corpus import Corpus
from stoker.data.ledger import Ledger
from stoker.data.ledger.excerpts import Excerpts
from stoker.data.prepare import prepare
from stoker.progress import Silent
from stoker.recipe.loading import LoadedRecipe
from tests.data.small_corpus import small_recipe, write_text_files


@pytest.fixture
def prepared(tmp_path: Path) -> tuple[LoadedRecipe, Corpus]:
    write_text_files(tmp_path / "text")
    loaded = small_recipe(tmp_path)
    return loaded, prepare(loaded, Silent())


def test_every_document_reads_as_it_did_whether_kept_or_not(prepared: tuple[LoadedRecipe, Corpus]) -> None:
    loaded, corpus = prepared
    rows = Ledger(corpus.folder).why("text/chinese.txt")
    lines = (loaded.folder / "text" / "chinese.txt").read_text(encoding="gbk").split("\n")
    excerpts = Excerpts(corpus, loaded, 20).of(rows)
    assert {row["verdict"] for row in rows} >= {"kept", "held_out", "dropped"}
    assert [one.text for one in excerpts] == [line[:20] for line in lines]


def test_a_fault_is_shown_by_its_detail(prepared: tuple[LoadedRecipe, Corpus]) -> None:
    loaded, corpus = prepared
    (excerpt,) = Excerpts(corpus, loaded, 20).of(Ledger(corpus.folder).sample("fault", 5))
    assert excerpt.text is None
    assert "expected a JSON object" in str(excerpt.missing)


def test_what_cannot_be_shown_is_said(prepared: tuple[LoadedRecipe, Corpus]) -> None:
    loaded, corpus = prepared
    dropped = [row for row in Ledger(corpus.folder).why("text/chinese.txt") if row["verdict"] == "dropped"]
    assert "name the recipe instead" in str(Excerpts(corpus, None, 20).of(dropped)[0].missing)
    path = loaded.folder / "text" / "chinese.txt"
    lines = path.read_text(encoding="gbk").split("\n")
    number = int(dropped[0]["position"].split()[1])
    path.write_text("\n".join([*lines[: number - 1], "另外一句话。", *lines[number:]]), encoding="gbk")
    assert "has changed since" in str(Excerpts(corpus, loaded, 20).of(dropped)[0].missing)
    path.write_text("\n".join(lines[:5]), encoding="gbk")
    assert "not in its file any more" in str(Excerpts(corpus, loaded, 20).of(dropped)[0].missing)
    path.unlink()
    assert Excerpts(corpus, loaded, 20).of(dropped)[0].missing is not None


def test_a_document_deep_in_a_large_file_is_found_without_reading_what_is_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.data.reading.units.UNIT_BYTES", 4_000)
    monkeypatch.setattr("stoker.data.reading.units._SCAN", 1_000)
    lines = [f"{number} 天地玄黄宇宙洪荒日月盈昃辰宿列张" for number in range(400)] + ["", "x"]
    lines[350] = lines[340]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    sources = [{"name": "only", "paths": ["a.txt"], "documents": "line"}]
    loaded = small_recipe(tmp_path, sources=sources, deduplication={"near": False})
    corpus = prepare(loaded, Silent())
    dropped = [row for row in Ledger(corpus.folder).why("a.txt") if row["reason"] and "exact" in row["reason"]]
    assert [row["position"] for row in dropped] == ["line 351"]
    read: list[str] = []
    from stoker.data.reading import read as reading

    original = reading.read_part

    def noted(source, part, limit):  # type: ignore[no-untyped-def]
        read.append(part.first_line)
        return original(source, part, limit)

    monkeypatch.setattr("stoker.data.reading.read.read_part", noted)
    (excerpt,) = Excerpts(corpus, loaded, 5).of(dropped)
    assert excerpt.text == lines[350][:5]
    assert len(read) == 1
    assert int(read[0]) > 200


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_document_with_the_address_of_its_page_is_found_again(tmp_path: Path, ending: str) -> None:
    rows = [
        {"text": f"{number} 天地玄黄宇宙洪荒日月盈昃辰宿列张", "url": address}
        for number, address in enumerate(("https://a.example/x, 7", None, "not shown", "http://b.example/y?z=1"))
    ]
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    loaded = small_recipe(
        tmp_path,
        sources=[{"name": "only", "paths": [path.name], "url_field": "url"}],
        deduplication={"near": False},
    )
    corpus = prepare(loaded, Silent())
    found = Ledger(corpus.folder).why(path.name)
    place = "line" if ending == "jsonl" else "row"
    assert [row["position"] for row in found] == [
        f"{place} 1", f"{place} 2", f"{place} 3", f"{place} 4, http://b.example/y?z=1"
    ]  # fmt: skip
    assert [one.text for one in Excerpts(corpus, loaded, 20).of(found)] == [row["text"][:20] for row in rows]
