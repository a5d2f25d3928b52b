"""What is trained on, what is held out, and what is cut or dropped: by whole preparations of a few texts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stoker.data.corpus import Corpus
from stoker.data.ledger import Ledger
from stoker.data.prepare import prepare
from stoker.errors import BadInput
from stoker.progress import Silent
from tests.data.small_corpus import folder_bytes, sentence, small_recipe
from tests.data.test_prepare import decoded
from tests.data.written_text import edited, english


def prepared(
    folder: Path,
    texts: list[str],
    kind: str = "prose",
    held_out: float = 0.0,
    filters: bool = False,
    **given: Any,
) -> Corpus:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    recipe = small_recipe(
        folder,
        sources=[{"name": "only", "paths": ["a.jsonl"], "kind": kind}],
        deduplication=given,
        cleaning={"filters": filters},
        held_out=held_out,
    )
    return prepare(recipe, Silent())


def rows(corpus: Corpus) -> pl.DataFrame:
    return Ledger(corpus.folder).rows().collect()


def near_copies() -> list[str]:
    text = english(1, 120)
    return [text, edited(text, "english", 1, 1), text + " With more at the end of it.", english(2, 120)]


def test_the_longest_is_kept_whatever_the_order(tmp_path: Path) -> None:
    texts = near_copies()
    for number in range(4):
        random.Random(number).shuffle(texts)
        corpus = prepared(tmp_path / str(number), texts, keep="longest")
        assert set(decoded(corpus, "only", "train")) == {near_copies()[2], near_copies()[3]}


def test_the_earliest_is_kept_by_default(tmp_path: Path) -> None:
    assert decoded(prepared(tmp_path, near_copies()), "only", "train") == near_copies()[::3]


@pytest.mark.parametrize(("measure", "best"), [("filter.digit_share", 1), ("filter.mean_word_length", 2)])
def test_the_best_by_a_measure_of_the_ledger_is_kept(tmp_path: Path, measure: str, best: int) -> None:
    text = english(1, 120)
    texts = [text, f"{text} 123 456 789", f"{text} incomprehensibilities", english(2, 120)]
    corpus = prepared(tmp_path, texts, filters=True, keep="best", quality=measure)
    found = rows(corpus)
    values = found[f"measure.{measure}"].to_list()
    assert max(values[:3]) == values[best]
    assert decoded(corpus, "only", "train") == [texts[best], texts[3]]
    assert found["duplicate_of"].to_list() == [None if n in (best, 3) else f"a.jsonl:{best + 1}" for n in range(4)]


def test_an_unknown_measure_of_quality_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"data\.deduplication\.quality: no measure is named fluency; there are: "):
        prepared(tmp_path, near_copies(), keep="best", quality="fluency")


def test_repeated_passages_are_cut_and_the_ledger_says_how_much(tmp_path: Path) -> None:
    header, footer = "Welcome to the site of the river people", "All rights are kept by the river people"
    draw = random.Random(1)
    bodies = [sentence(draw, 30) for _ in range(6)]
    texts = [f"{header}\n{body}\n{footer}" for body in bodies] + [f"{footer}\n{header}"]
    corpus = prepared(tmp_path, texts, line_copies=2)
    left = decoded(corpus, "only", "train")
    assert left == [*texts[:2], *(f"{body}\n" for body in bodies[2:])]
    found = rows(corpus)
    assert found["repeated_lines"].to_list() == [None, None, *[len(header) + 1 + len(footer)] * 4, 79]
    assert found["verdict"].to_list() == ["kept"] * 6 + ["dropped"]
    assert found["reason"].to_list()[-1] == "repeated_passages"
    (source,) = corpus.manifest["sources"]
    assert source["splits"]["train"]["characters"] == sum(map(len, left))
    assert corpus.store("only", "train").document_bytes.tolist() == [len(text.encode()) for text in left]


def test_nothing_is_cut_out_of_code_unless_told_to(tmp_path: Path) -> None:
    draw = random.Random(1)
    licence = "# This file may be copied by everyone who keeps this line in it"
    texts = [f"{licence}\n# {sentence(draw, 30)}\n" for _ in range(4)]
    corpus = prepared(tmp_path / "kept", texts, kind="code", line_copies=1)
    assert all(licence in text for text in decoded(corpus, "only", "train"))
    told = prepared(tmp_path / "cut", texts, kind="code", line_copies=1, passages_of=["code"])
    assert sum(licence in text for text in decoded(told, "only", "train")) == 1


def test_paragraphs_lines_and_substrings_are_cut_one_after_another(tmp_path: Path) -> None:
    shared = english(9, 40).replace("\n", " ")
    draw = random.Random(2)
    texts = [f"{sentence(draw, 20)} {shared} {sentence(draw, 20)}\n\n{english(8, 20)}" for _ in range(3)]
    corpus = prepared(tmp_path, texts, paragraph_copies=1, line_copies=1, substring_bytes=100)
    found = rows(corpus)
    paragraphs, substrings = found["repeated_paragraphs"].to_list(), found["repeated_substrings"].to_list()
    assert paragraphs == [None, len(english(8, 20)), len(english(8, 20))]
    assert substrings[0] is None
    assert all(len(shared) - 12 <= cut <= len(shared) + 12 for cut in substrings[1:])
    assert all(shared[20:-20] not in text for text in decoded(corpus, "only", "train")[1:])


def test_a_selection_is_the_same_with_any_number_of_workers(tmp_path: Path) -> None:
    draw = random.Random(5)
    texts = [sentence(draw, 60) for _ in range(60)]
    texts += [edited(text, "english", 1, 7) for text in texts[::2]]
    draw.shuffle(texts)
    (tmp_path / "text").mkdir()
    for part in range(4):
        lines = [json.dumps({"text": text}) + "\n" for text in texts[part::4]]
        (tmp_path / "text" / f"{part}.jsonl").write_text("".join(lines))
    sources = [{"name": "only", "paths": ["text/*.jsonl"]}]
    settings = {"keep": "longest", "line_copies": 1, "substring_bytes": 64, "clusters": "connected"}
    made = []
    for workers in (1, 2):
        recipe = small_recipe(
            tmp_path, sources=sources, deduplication=settings, workers=workers, prepared=f"prepared-{workers}"
        )
        made.append(folder_bytes(prepare(recipe, Silent()).folder))
    assert made[0] == made[1]


def test_no_held_out_text_resembles_what_is_trained_on(tmp_path: Path) -> None:
    draw = random.Random(6)
    texts = [sentence(draw, 60) for _ in range(80)]
    texts += [edited(text, "english", 1, 7) for text in texts]
    for given in ({}, {"near": False}, {"clusters": "connected"}, {"keep": "longest"}):
        corpus = prepared(tmp_path / str(len(given)) / str(given.keys()), texts, held_out=0.3, **given)
        train = {frozenset(text.split()) for text in decoded(corpus, "only", "train")}
        held_out = [frozenset(text.split()) for text in decoded(corpus, "only", "held_out")]
        assert held_out
        assert all(len(own & other) < 0.8 * len(own | other) for own in held_out for other in train)


def pages_of_a_host(number: int) -> list[dict[str, str]]:
    draw = random.Random(3)
    return [
        {
            "text": f"Kiln diary\nGlaze shelf\n\n{sentence(draw, 30)}\n\nBack to the wheel\nMore jars",
            "url": f"https://{'www.' if page % 2 else ''}Kiln.example:8080/p/{page}?x=y",
        }
        for page in range(number)
    ]


def prepared_pages(folder: Path, rows: list[dict[str, str]], workers: int = 1, **source: Any) -> Corpus:
    (folder / "text").mkdir(parents=True, exist_ok=True)
    for part in range(2):
        lines = [json.dumps(row) + "\n" for row in rows[part::2]]
        (folder / "text" / f"{part}.jsonl").write_text("".join(lines))
    deduplication = source.pop("deduplication", {})
    recipe = small_recipe(
        folder,
        sources=[{"name": "only", "paths": ["text/*.jsonl"], **source}],
        deduplication=deduplication,
        cleaning={"filters": False},
        held_out=0.3,
        workers=workers,
        prepared=f"prepared-{workers}",
    )
    return prepare(recipe, Silent())


def test_what_recurs_on_a_host_is_cut_on_both_sides_and_the_ledger_says_how_much(tmp_path: Path) -> None:
    made = [prepared_pages(tmp_path, pages_of_a_host(30), workers, url_field="url") for workers in (1, 2)]
    assert folder_bytes(made[0].folder) == folder_bytes(made[1].folder)
    texts = [*decoded(made[0], "only", "train"), *decoded(made[0], "only", "held_out")]
    assert len(texts) == 30
    assert not any(word in text for text in texts for word in ("Kiln", "Glaze", "wheel", "jars"))
    found = rows(made[0])
    assert set(found["host_furniture"]) == {len("Kiln diary\nGlaze shelf\n\nBack to the wheel\nMore jars")}
    assert set(found["split"]) == {"train", "held_out"}
    assert found["position"][1] == "line 2, https://Kiln.example:8080/p/2?x=y"


def test_without_addresses_a_source_is_a_host_only_where_it_is_told_so(tmp_path: Path) -> None:
    left = prepared_pages(tmp_path / "hosts", pages_of_a_host(30))
    assert set(rows(left)["host_furniture"]) == {None}
    told = {"deduplication": {"host_furniture": "hosts_and_sources"}}
    cut = prepared_pages(tmp_path / "sources", pages_of_a_host(30), **told)
    assert None not in set(rows(cut)["host_furniture"])
    code = prepared_pages(tmp_path / "code", pages_of_a_host(30), kind="code", url_field="url")
    assert set(rows(code)["host_furniture"]) == {None}
    switched_off = {"deduplication": {"host_furniture": "off"}, "url_field": "url"}
    off = prepared_pages(tmp_path / "off", pages_of_a_host(30), **switched_off)
    assert set(rows(off)["host_furniture"]) == {None}


def test_cleaning_moves_no_document_between_the_splits(tmp_path: Path) -> None:
    texts = [f"{english(number, 60)}  See also the page\u00a0{number}.   " for number in range(200)]
    texts += ["short", "!!! ??? !!! ???", "A " * 30]
    sides: list[dict[str, str]] = []
    for number, (filters, pattern) in enumerate([(False, None), (True, None), (False, "See also.*")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = [json.dumps({"text": text, "n": str(n)}) for n, text in enumerate(texts)]
        (folder / "a.jsonl").write_text("\n".join(lines))
        source = {"name": "only", "paths": ["a.jsonl"], "id_field": "n", "remove_pattern": pattern}
        recipe = small_recipe(folder, sources=[source], cleaning={"filters": filters}, held_out=0.2)
        found = rows(prepare(recipe, Silent()))
        sides.append(dict(found.select("identifier", "verdict").iter_rows()))
    held_out = [{name for name, verdict in one.items() if verdict == "held_out"} for one in sides]
    assert 20 < len(held_out[0]) < 70
    for one, chosen in zip(sides, held_out, strict=True):
        left = {name for name, verdict in one.items() if verdict in ("kept", "held_out")}
        assert chosen == held_out[0] & left


def test_texts_that_cleaning_makes_equal_are_on_one_side(tmp_path: Path) -> None:
    texts = [english(number, 40) + blank * 3 for number in range(60) for blank in ("", " ", "\n", "\u00a0")]
    corpus = prepared(tmp_path, texts, held_out=0.3, exact=False, near=False)
    train, held_out = (set(decoded(corpus, "only", split)) for split in ("train", "held_out"))
    assert held_out
    assert not train & held_out
