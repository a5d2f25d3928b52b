"""What is written is what is found, wherever parts and groups end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.ledger import Ledger
from stoker.data.ledger.hashing import hashes_of
from stoker.data.ledger.index import hash_of
from stoker.data.ledger.origins import ORIGIN
from stoker.errors import StokerError
from tests.data.ledger.drawn_ledger import MARKUP, SYMBOLS, note, row, write

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@st.composite
def drawn_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Documents of two sources with names of any script, some of them twice, in files that come in runs."""
    rows = []
    for source in ("a", "b"):
        for file in draw(st.lists(names, max_size=4, unique=True)):
            for number in range(draw(st.integers(1, 7))):
                verdict = draw(st.sampled_from(["kept", "held_out", "dropped", "fault"]))
                reason = "markup" if verdict == "dropped" else "not_json" if verdict == "fault" else None
                identifier = draw(st.one_of(names, st.just("again")))
                rows.append(row(source, number, verdict, reason, file=file, identifier=identifier))
    return rows


@given(rows=drawn_rows(), several=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_every_row_is_found_by_number_name_file_and_place(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], several: int
) -> None:
    ledger = write(tmp_path_factory.mktemp("ledger"), [note("a", MARKUP), note("b", SYMBOLS)], rows, several)
    found = ledger.at(range(len(rows)))
    for one, read in zip(rows, found, strict=True):
        assert {name: read[name] for name in one if name != "sha256"} == {
            k: v for k, v in one.items() if k != "sha256"
        }
        assert read["sha256"] == one["sha256"].hex()
    assert ledger.at(range(len(rows) - 1, -1, -1)) == found[::-1]
    for name in {one["identifier"] for one in rows} - {one["file"] for one in rows}:
        assert ledger.why(name) == [one for one in found if one["identifier"] == name]
    for name in {one["file"] for one in rows}:
        assert ledger.why(name) == [one for one in found if one["file"] == name]
        assert ledger.rows_of(name) == sum(one["file"] == name for one in rows)
    for one in found:
        if one["split"] is not None:
            assert ledger.document(one["source"], one["split"], one["document"]) == one
            origins = ledger.documents(one["source"], one["split"], [one["document"]])
            assert origins == {one["document"]: {name: one[name] for name in ORIGIN}}
    assert ledger.rows().collect().height == len(rows)


@given(words=st.lists(st.text(st.characters(codec="utf-8")), min_size=1), skipped=st.text())
def test_many_names_are_hashed_as_one_is(words: list[str], skipped: str) -> None:
    assert hashes_of(pa.array([skipped, *words], pa.string())[1:]).tolist() == [hash_of(word) for word in words]


def test_the_hash_is_that_of_the_format() -> None:
    assert f"{hash_of(''):016x} {hash_of('文章 003.txt'):016x}" == "efd01f60ba992926 7a9972c16c0efc12"


def test_a_ledger_without_rows_answers(tmp_path: Path) -> None:
    ledger = write(tmp_path, [note("a", MARKUP)], [])
    assert ledger.funnel() == []
    assert ledger.why("anything") == []
    assert ledger.sample("kept", 3) == []
    assert ledger.documents("a", "train", [0]) == {}


def test_the_same_rows_give_the_same_bytes_however_they_are_added(tmp_path: Path) -> None:
    rows = [
        row("a", number, "dropped" if number % 3 else "kept", position=f"line {number}" if number % 5 else None)
        for number in range(50)
    ]
    folders = [tmp_path / str(several) for several in (1, 7, 50)]
    for folder, several in zip(folders, (1, 7, 50), strict=True):
        write(folder, [note("a", MARKUP)], rows, several)
    written = [{path.name: path.read_bytes() for path in (folder / "ledger").iterdir()} for folder in folders]
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize(
    "name",
    [
        "part-000001.parquet",
        "origins-000001.arrow",
        "identifiers.index",
        "files.parquet",
        "places.rows",
        "summary.parquet",
        "ledger.json",
    ],
)
@pytest.mark.parametrize("harm", ["torn", "gone", "a folder", "other bytes"])
def test_a_damaged_file_is_named_with_what_makes_it_right(tmp_path: Path, name: str, harm: str) -> None:
    write(tmp_path, [note("a", MARKUP)], [row("a", number) for number in range(40)])
    path = tmp_path / "ledger" / name
    content = path.read_bytes()
    if harm in ("gone", "a folder"):
        path.unlink()
        if harm == "a folder":
            path.mkdir()
    else:
        path.write_bytes(content[: len(content) // 2] if harm == "torn" else b"\xff" * (len(content) - 1))
    with pytest.raises(StokerError, match=r"prepare RECIPE` .*again"):
        ask_everything(tmp_path)


def test_an_index_that_names_rows_there_are_not_is_damaged(tmp_path: Path) -> None:
    write(tmp_path, [note("a", MARKUP)], [row("a", number) for number in range(40)])
    path = tmp_path / "ledger" / "identifiers.index"
    path.write_bytes(path.read_bytes()[:-4] + b"\xff\xff\x00\x00")
    with pytest.raises(StokerError, match=r"names row 65,535 of 40.* is damaged"):
        Ledger(tmp_path).hashes()


@pytest.mark.parametrize(
    "edit", [{"rows": -1}, {"part_rows": 0}, {"group_rows": 0}, {"rows": "x"}, {"sources": []}]
)
def test_a_description_edited_by_hand_is_named(tmp_path: Path, edit: dict[str, Any]) -> None:
    write(tmp_path, [note("a", MARKUP)], [row("a", number) for number in range(40)])
    path = tmp_path / "ledger" / "ledger.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(StokerError, match=re.escape(f"{path}: ")):
        Ledger(tmp_path).funnel()


def ask_everything(corpus: Path) -> None:
    ledger = Ledger(corpus)
    ledger.at(range(40))
    ledger.why("a/1.txt:3")
    ledger.documents("a", "train", range(40))
    ledger.summary()


def test_a_ledger_of_the_former_format_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "part-000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(StokerError, match="older format"):
        Ledger(tmp_path)
