"""What was read before is not read again, and what comes out is the same."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data import fingerprint
from stoker.data.corpus import Corpus
from stoker.data.fingerprint import take_inputs
from stoker.data.prepare import prepare
from stoker.data.reading.units import plan_units
from stoker.data.stages import reused_units
from stoker.data.stages.reused_units import UNITS, ReusedUnits
from stoker.progress import Silent
from tests.data.small_corpus import folder_bytes, small_recipe
from tests.data.stages.test_earlier import sentences

MEMORY = 1 << 30


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def made(folder: Path, names: list[str], **data: Any) -> tuple[Corpus, list[str]]:
    told = Told()
    data = {"sources": [{"name": name, "paths": [f"{name}.jsonl"]} for name in names], **data}
    return prepare(small_recipe(folder, **data), told), told.said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate("abc"):
        lines = [json.dumps({"text": text}) + "\n" for text in sentences(seed, 40)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    return tmp_path


def test_a_source_that_is_added_is_the_only_one_read(folder: Path) -> None:
    made(folder, ["a", "b"], reuse=True)
    corpus, said = made(folder, ["a", "c", "b"], reuse=True)
    assert "2 of 3 parts of the input are as an earlier corpus left them" in said
    fresh, said = made(folder, ["a", "c", "b"], prepared="fresh")
    assert not any("of the input are" in line for line in said)
    assert folder_bytes(corpus.folder) == folder_bytes(fresh.folder)
    assert not (folder / "fresh" / ".units").exists()


def test_what_decides_the_reading_makes_it_read_again(folder: Path) -> None:
    made(folder, ["a"], reuse=True)
    for changed in ({"cleaning": {"filters": False}}, {"deduplication": {"permutations": 64}}):
        _, said = made(folder, ["a"], reuse=True, **changed)
        assert not any("of the input are" in line for line in said)
    _, said = made(folder, ["a"], reuse=True, deduplication={"permutations": 64, "threshold": 0.9})
    assert "1 of 1 part of the input are as an earlier corpus left them" in said
    (folder / "a.jsonl").write_text(json.dumps({"text": " ".join(sentences(9, 40))}) + "\n")
    _, said = made(folder, ["a"], reuse=True, deduplication={"permutations": 64, "threshold": 0.9}, held_out=0)
    assert not any("of the input are" in line for line in said)


def test_no_more_is_kept_than_the_last_preparation_used(folder: Path) -> None:
    made(folder, ["a", "b"], reuse=True)
    made(folder, ["a", "c"], reuse=True)
    assert len(list((folder / "prepared" / ".units").iterdir())) == 2 * 4


def test_units_are_copied_where_a_file_can_have_but_one_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(reused_units.os, "link", refused)
    made(folder, ["a"], reuse=True)
    _, said = made(folder, ["a", "b"], reuse=True)
    assert "1 of 2 parts of the input are as an earlier corpus left them" in said


@pytest.mark.parametrize("engine", ["stoker", "trafilatura", "resiliparse"])
def test_a_new_version_of_an_extractor_reads_pages_again_and_tells_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    library = {"stoker": "selectolax"}.get(engine, engine)
    pytest.importorskip(library)
    for number, text in enumerate(sentences(7, 40)):
        page = f"<html><body><article><p>{text}</p><p>{text[::-1]}</p></article></body></html>"
        (folder / f"{number}.html").write_text(page)
    pages = [{"name": "pages", "paths": ["*.html"], "extraction": engine}]
    texts = [{"name": "a", "paths": ["a.jsonl"], "extraction": engine}]
    of_pages, _ = made(folder, [], reuse=True, sources=pages)
    of_text, _ = made(folder, [], sources=texts)
    known = fingerprint.version
    monkeypatch.setattr(fingerprint, "version", lambda name: "99.1" if name == library else known(name))
    again, said = made(folder, [], reuse=True, sources=pages)
    assert again.fingerprint != of_pages.fingerprint
    why = f"{library} {known(library)} is now 99.1"
    assert f"the corpus is prepared anew, since text may come out otherwise: {why}" in said
    assert not any("of the input are as an earlier" in line for line in said)
    _, said = made(folder, [], reuse=True, sources=pages)
    assert not any("anew" in line for line in said)
    same, _ = made(folder, [], sources=texts)
    assert same.fingerprint == of_text.fingerprint, "no page, so no extractor decides anything"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(0, 12)))
    made(folder, ["a"], reuse=True)
    return folder


KINDS = ["text", "signatures", "parquet", "sha256"]


@given(st.sampled_from(KINDS), st.floats(0, 1), st.integers(0, 255))
def test_a_unit_of_which_a_file_is_cut_or_altered_anywhere_is_not_taken(
    kept: Path, kind: str, share: float, change: int
) -> None:
    """A change of 0 cuts the file; any other alters a byte and leaves its length."""
    inputs = take_inputs(small_recipe(kept, sources=[{"name": "a", "paths": ["a.jsonl"]}], reuse=True), 1, Silent())
    with tempfile.TemporaryDirectory(dir=kept) as temporary:
        folder, read = Path(temporary) / "units", Path(temporary) / "read"
        shutil.copytree(kept / "prepared" / UNITS, folder)
        read.mkdir()
        (file,) = folder.glob(f"*.{kind}")
        whole = file.read_bytes()
        place = int(share * (len(whole) - 1 if change else len(whole)))
        file.write_bytes(whole[:place] + (bytes([whole[place] ^ change]) + whole[place + 1 :] if change else b""))
        is_whole = file.read_bytes() == whole
        assert ReusedUnits(folder, inputs, MEMORY).take(plan_units(inputs.files), read) == is_whole
        assert len(list(read.iterdir())) == 3 * is_whole
        assert len(list(folder.iterdir())) == 4 * is_whole


def test_a_unit_with_torn_signatures_is_read_anew_and_kept_anew(kept: Path) -> None:
    (file,) = (kept / "prepared" / UNITS).glob("*.signatures")
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[:-1])
    _, said = made(kept, ["a"], reuse=True, held_out=0.25)
    assert not any("of the input are as an earlier corpus left them" in line for line in said)
    assert file.read_bytes() == whole
