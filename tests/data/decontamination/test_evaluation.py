"""Evaluation sets are read from files, and what is found is dropped or cut and named in the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.data.document import Document
from stoker.data.fingerprint import take_inputs
from stoker.data.operators import judge, operators_of
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe import Cleaning, Source
from stoker.recipe.loading import load_recipe
from tests.data.decontamination.test_search import QUESTION
from tests.recipe.recipes import write_with_text

ROW = {
    "question": QUESTION,
    "answer": "She sold 48 and 24 clips, which makes 72 clips in April and in May together.",
}


def written(folder: Path, **more: object) -> Cleaning:
    (folder / "exam.jsonl").write_text(json.dumps(ROW) + "\n")
    section = {"paths": ["exam.jsonl"], "fields": ["question", "answer"], **more}
    return Cleaning.model_validate({"decontaminate": section}).located(folder)


def outcome(settings: Cleaning, text: str) -> tuple[str, str | None, str | None, float]:
    source = Source(name="s", paths=("x",))
    judged = judge(Document("s", "prose", "en", "1", "f", "file", text), operators_of(source, settings))
    return judged.document.text, judged.reason, judged.detail, judged.measures["decontamination.overlap"]


@pytest.mark.parametrize("field", ["question", "answer"])
def test_a_document_with_an_item_is_dropped_and_the_item_is_named(tmp_path: Path, field: str) -> None:
    text, reason, detail, overlap = outcome(written(tmp_path), f"An old page.\n{ROW[field]}")
    assert (reason, detail, overlap) == ("contaminated", f"exam.jsonl line 1, {field}", 1.0)
    assert text.startswith("An old page.")


def test_lines_are_cut_where_the_recipe_says_so(tmp_path: Path) -> None:
    settings = written(tmp_path, action="cut")
    assert outcome(settings, f"An old page.\n{QUESTION}\nIts end.") == (
        "An old page.\nIts end.",
        None,
        "exam.jsonl line 1, question",
        1.0,
    )
    assert outcome(settings, QUESTION)[1] == "empty"


def test_other_text_is_measured_and_kept(tmp_path: Path) -> None:
    text = "Nothing of an exam is in this text, which speaks of rivers."
    assert outcome(written(tmp_path), text) == (text, None, None, 0.0)


def test_a_threshold_asks_for_more_than_one_run(tmp_path: Path) -> None:
    part = " ".join(QUESTION.split()[:14])
    assert outcome(written(tmp_path), part)[1] == "contaminated"
    lenient = written(tmp_path).model_copy(update={"thresholds": {"contaminated": 0.5}})
    assert outcome(lenient, part)[1] is None
    assert outcome(lenient, QUESTION)[1] == "contaminated"


def test_a_changed_evaluation_set_is_read_again(tmp_path: Path) -> None:
    settings = written(tmp_path)
    assert outcome(settings, QUESTION)[1] == "contaminated"
    (tmp_path / "exam.jsonl").write_text(json.dumps({"question": "Something else is asked here.", "answer": "No."}))
    assert outcome(settings, QUESTION)[1] is None


def test_an_item_that_cannot_be_read_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"data\.cleaning\.decontaminate: .*exam\.jsonl, line 1.*no_text_field.*problem"
    ):
        operators_of(Source(name="s", paths=("x",)), written(tmp_path, fields=["problem"]))


def test_the_content_of_evaluation_sets_decides_the_fingerprint(tmp_path: Path) -> None:
    path = write_with_text(tmp_path)
    (tmp_path / "exam.txt").write_text("one item\n")
    own = ["data.cleaning.decontaminate.paths=[exam.txt]"]
    first = take_inputs(load_recipe(path, own), 1, Silent()).fingerprint
    (tmp_path / "exam.txt").write_text("another item\n")
    second = take_inputs(load_recipe(path, own), 1, Silent()).fingerprint
    assert len({first, second, take_inputs(load_recipe(path), 1, Silent()).fingerprint}) == 3


def test_a_missing_evaluation_set_is_told_before_anything_is_read(tmp_path: Path) -> None:
    path = write_with_text(tmp_path)
    own = ["data.cleaning.decontaminate.paths=[missing.txt]"]
    with pytest.raises(BadInput, match=r"data\.cleaning\.decontaminate\.paths.*missing\.txt does not exist"):
        take_inputs(load_recipe(path, own), 1, Silent())
    with pytest.raises(BadInput, match=r"missing\.txt does not exist"):
        load_recipe(path, own, with_files=True)
