"""A corpus that was prepared before keeps its text out of a new one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.corpus import Corpus
from stoker.data.deduplication import sign
from stoker.data.ledger import Ledger
from stoker.data.prepare import prepare
from stoker.data.stages.earlier import EarlierCorpora
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe import Deduplication
from tests.data.small_corpus import sentence, small_recipe
from tests.data.test_prepare import decoded
from tests.data.written_text import edited


def sentences(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return [sentence(draw, 60) for _ in range(count)]


def prepared(folder: Path, texts: list[str], held_out: float = 0.0, **deduplication: Any) -> Corpus:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    sources = [{"name": "only", "paths": ["a.jsonl"]}]
    recipe = small_recipe(
        folder, sources=sources, deduplication=deduplication, cleaning={"filters": False}, held_out=held_out
    )
    return prepare(recipe, Silent())


@pytest.mark.parametrize("kept", [True, False])
def test_what_resembles_an_earlier_corpus_is_dropped_and_its_original_named(tmp_path: Path, kept: bool) -> None:
    old, new = sentences(1, 40), sentences(2, 20)
    first = prepared(tmp_path / "first", old, keep_signatures=kept)
    assert (first.folder / "signatures").exists() == kept
    texts = [new[0], edited(old[7], "english", 1, 3), *new[1:], old[11], old[11]]
    second = prepared(tmp_path / "second", texts, against=[str(first.folder)])
    assert decoded(second, "only", "train") == new
    rows = Ledger(second.folder).rows().collect().to_dicts()
    assert [row["reason"] for row in rows if row["verdict"] == "dropped"] == [
        "in_earlier_corpus",
        "in_earlier_corpus",
        "exact_duplicate",
    ]
    assert rows[1]["detail"] == f"in the corpus {first.fingerprint}/only, training document 7"
    assert 0.8 <= rows[1]["similarity"] < 1
    assert rows[-2]["similarity"] == 1


def test_several_corpora_and_what_is_held_out_are_looked_through(tmp_path: Path) -> None:
    old, other, new = sentences(1, 30), sentences(2, 30), sentences(3, 60)
    folders = [
        str(prepared(tmp_path / "a", old, keep_signatures=True).folder),
        str(prepared(tmp_path / "b", other, permutations=64, keep_signatures=True).folder),
    ]
    made = prepared(tmp_path / "c", [*new, *old, *other], held_out=0.3, against=folders)
    assert set(decoded(made, "only", "train")) | set(decoded(made, "only", "held_out")) == set(new)


def test_published_signatures_are_those_of_the_text_as_it_is_trained_on(tmp_path: Path) -> None:
    line = "a line that stands in every one of these documents"
    texts = [f"{line}\n{text}" for text in sentences(4, 12)]
    corpus = prepared(tmp_path, texts, line_copies=1, keep_signatures=True)
    left = decoded(corpus, "only", "train")
    assert sum(line in text for text in left) == 1
    note = corpus.manifest["signatures"]["files"]["only"]
    found = np.fromfile(corpus.folder / note["file"], "<u4").reshape(len(left), -1)
    assert np.array_equal(found, sign(left, Deduplication()))


def test_another_earlier_corpus_makes_another_fingerprint(tmp_path: Path) -> None:
    first = prepared(tmp_path / "first", sentences(1, 20))
    other = prepared(tmp_path / "other", sentences(2, 20))
    texts = sentences(3, 20)
    made = {
        prepared(tmp_path / "made", texts, against=against).fingerprint
        for against in ([], [str(first.folder)], [str(other.folder)])
    }
    assert len(made) == 3


def test_a_folder_that_is_no_corpus_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "file").write_text("text")
    with pytest.raises(BadInput, match=r"data\.deduplication\.against: .*text holds no prepared corpus"):
        prepared(tmp_path, sentences(1, 20), against=["text"])


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepared(tmp_path_factory.mktemp("signed"), sentences(1, 20), keep_signatures=True)


@settings(max_examples=20, deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), cut=st.booleans(), flip=st.integers(1, 255))
def test_signatures_that_were_cut_or_altered_anywhere_are_made_anew(
    signed: Corpus, tmp_path_factory: pytest.TempPathFactory, at: float, cut: bool, flip: int
) -> None:
    path = signed.folder / signed.manifest["signatures"]["files"]["only"]["file"]
    whole = path.read_bytes()
    place = int(at * len(whole))
    try:
        path.write_bytes(
            whole[:place] if cut else whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :]
        )
        earlier = EarlierCorpora([signed], Deduplication(), tmp_path_factory.mktemp("anew"))
        found = earlier.signatures(np.arange(len(earlier)))
    finally:
        path.write_bytes(whole)
    assert found.astype("<u4").tobytes() == whole
