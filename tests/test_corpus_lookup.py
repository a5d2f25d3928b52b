"""A recipe, a run or a corpus's own folder: all name the same prepared text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.corpus_lookup import corpus_at, history_of
from stoker.data.prepare import prepare
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.run_directory import RunDirectory
from stoker.training.origin import write_origin
from tests.data.small_corpus import small_recipe
from tests.data.test_prepare import words, write_lines
from tests.end_to_end.small_job import write_job


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, its prepared text, and a run that says where that is."""
    folder = tmp_path_factory.mktemp("a job")
    loaded = load_recipe(write_job(folder))
    corpus = prepare(loaded, Silent())
    loaded.run.path.mkdir(parents=True)
    loaded.run.recipe.write_text(dump_recipe(loaded.recipe), encoding="utf-8")
    write_origin(loaded.run, loaded.path, corpus.folder)
    return folder


def test_recipe_run_and_corpus_name_the_same_text(job: Path) -> None:
    corpus = corpus_at(job / "recipe.yaml")
    assert corpus_at(job / "runs" / "small").folder == corpus.folder
    assert corpus_at(corpus.folder).folder == corpus.folder
    assert corpus_at(job).folder == corpus.folder


def test_text_that_is_not_prepared_is_said(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    with pytest.raises(BadInput, match=r"is not prepared yet; run `stoker prepare .*recipe\.yaml` first"):
        corpus_at(path)


def test_what_was_prepared_with_overrides_is_named_where_the_recipe_is_not_prepared(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    with pytest.raises(BadInput, match=r"first$"):
        corpus_at(path)
    corpus = prepare(load_recipe(path, ["data.held_out=0.02"]), Silent())
    with pytest.raises(BadInput, match=rf"such as overrides, is named by its own folder: {corpus.folder}$"):
        corpus_at(path)


def test_a_folder_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is neither a run nor a prepared corpus"):
        corpus_at(tmp_path)


def _json(*arguments: object) -> list[dict[str, object]]:
    result = CliRunner().invoke(cli.application, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_the_funnel_adds_up(job: Path) -> None:
    entries = _json("data", "funnel", job / "recipe.yaml")
    for source in ("english", "chinese", "code", "mathematics"):
        counts = {(e["stage"], e.get("reason")): e["documents"] for e in entries if e["source"] == source}
        after = [n for (stage, _), n in counts.items() if stage not in ("read", "fault")]
        assert counts[("read", None)] == sum(int(str(n)) for n in after)


def test_why_follows_a_document_to_the_one_it_repeats(job: Path) -> None:
    (row,) = _json("data", "sample", job / "recipe.yaml", "exact_duplicate", "--count", 1)
    (again,) = _json("data", "why", job / "recipe.yaml", row["identifier"])
    told = {name for name in row.keys() & again.keys() if name != "excerpt"}
    assert {"source", "verdict", "reason", "duplicate_of"} <= told
    assert {name: again[name] for name in told} == {name: row[name] for name in told}
    assert str(row["excerpt"])
    (first,) = _json("data", "why", job / "recipe.yaml", row["duplicate_of"])
    assert first["verdict"] in ("kept", "held_out")


@pytest.mark.parametrize(("words", "name"), [(("data", "why"), "nothing.txt"), (("data", "sample"), "no_reason")])
def test_a_name_the_ledger_does_not_know_is_bad_input(job: Path, words: tuple[str, ...], name: str) -> None:
    with pytest.raises(BadInput, match=f"{name}"):
        CliRunner().invoke(cli.application, [*words, str(job / "recipe.yaml"), name], catch_exceptions=False)


def test_licences_are_listed_without_preparing(tmp_path: Path) -> None:
    rows = _json("data", "licences", write_job(tmp_path))
    assert [row["source"] for row in rows] == ["english", "chinese", "code", "mathematics"]
    assert not (tmp_path / "prepared").exists()


def test_show_prints_the_documents_of_a_step(job: Path) -> None:
    run = RunDirectory(job / "runs" / "small").path
    result = CliRunner().invoke(cli.application, ["data", "show", str(run), "--step", "3"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "step 3: 8 sequences" in result.stdout
    assert "text/中文 文本" in result.stdout or "english.jsonl" in result.stdout


def test_a_file_is_found_by_its_path_and_by_its_last_parts(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_at(job)
    rows = history_of(corpus, "text/中文 文本/文章 003.txt")
    assert len(rows) == 1
    assert history_of(corpus, str(job / "text" / "中文 文本" / "文章 003.txt")) == rows
    assert history_of(corpus, "文章 003.txt") == rows
    assert history_of(corpus, "中文 文本/文章 003.txt") == rows
    monkeypatch.chdir(job / "text")
    assert history_of(corpus, "./中文 文本/文章 003.txt") == rows
    with pytest.raises(BadInput, match="no document and no file named 'none"):
        history_of(corpus, "none.txt")


def test_a_name_of_several_files_is_answered_with_their_list(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_lines(tmp_path / folder / "same.jsonl", words(60, seed=ord(folder)))
    sources = [{"name": name, "paths": [f"{name}/same.jsonl"]} for name in ("a", "b")]
    corpus = prepare(small_recipe(tmp_path, sources=sources), Silent())
    with pytest.raises(BadInput, match=r"one of 2 files; name one in full: a/same.jsonl, b/same.jsonl"):
        history_of(corpus, "same.jsonl")
    assert {row["source"] for row in history_of(corpus, str(tmp_path / "b" / "same.jsonl"))} == {"b"}


def test_a_document_is_found_by_its_place_whatever_its_identifier_is(tmp_path: Path) -> None:
    rows = [{"id": f"page {number}", "text": text} for number, text in enumerate(words(60, seed=3), 1)]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "web.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"name": "web", "paths": ["text/web.jsonl"], "format": "jsonl", "id_field": "id"}
    corpus = prepare(small_recipe(tmp_path, sources=[source]), Silent())
    for name in ("text/web.jsonl:7", "web.jsonl, line 7", str(tmp_path / "text" / "web.jsonl:7")):
        assert [row["identifier"] for row in history_of(corpus, name)] == ["page 7"]
    assert history_of(corpus, "page 7") == history_of(corpus, "web.jsonl:7")
    with pytest.raises(BadInput, match=r"knows no document at line 61 of text/web\.jsonl"):
        history_of(corpus, "web.jsonl, line 61")
