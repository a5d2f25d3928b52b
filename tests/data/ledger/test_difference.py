"""Two corpora are told apart document by document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.ledger.difference import ABSENT, difference
from tests.data.ledger.drawn_ledger import MARKUP, note, row, write


def changes(found: Any) -> dict[tuple[str, str, str], int]:
    return {(one.source, one.before, one.after): one.documents for one in found.transitions}


def test_a_corpus_and_itself_are_the_same(tmp_path: Path) -> None:
    rows = [row("a", number, "dropped" if number % 3 else "kept", "markup") for number in range(30)]
    ledger = write(tmp_path, [note("a", MARKUP)], rows)
    found = difference(ledger, ledger)
    assert (found.transitions, found.thresholds, found.unchanged, found.changed_text) == ((), (), 30, 0)
    assert all(one.before == one.after for one in found.funnel)


def test_every_fate_that_changed_is_counted_with_some_documents(tmp_path: Path) -> None:
    before = [row("a", number) for number in range(6)] + [row("b", 0)]
    after = [
        row("a", 0),
        row("a", 1, "dropped", "markup"),
        row("a", 2, "held_out"),
        row("a", 3, sha256=bytes([1] * 32)),
        row("a", 5, "dropped", "markup"),
        row("a", 60),
        row("c", 0, sha256=bytes([2] * 32)),
    ]
    moved = replace(MARKUP, threshold=0.5)
    first = write(tmp_path / "first", [note("a", MARKUP), note("b")], before)
    second = write(tmp_path / "second", [note("a", moved), note("c")], after)
    found = difference(first, second)
    assert changes(found) == {
        ("a", "kept", "markup"): 2,
        ("a", "kept", "held_out"): 1,
        ("a", "kept", ABSENT): 1,
        ("a", ABSENT, "kept"): 1,
        ("b", "kept", ABSENT): 1,
        ("c", ABSENT, "kept"): 1,
    }
    assert (found.unchanged, found.changed_text) == (1, 1)
    named = {
        (one.before, one.after): [
            row["identifier"] for row in first.at(one.first_rows) or second.at(one.second_rows)
        ]
        for one in found.transitions
        if one.source == "a"
    }
    assert named["kept", "markup"] == ["a/0.txt:2", "a/0.txt:6"]
    assert named[ABSENT, "kept"] == ["a/6.txt:1"]
    assert [(one.source, one.before, one.after) for one in found.sources] == [
        ("a", 60, 30),
        ("c", None, 10),
        ("b", 10, None),
    ]
    assert [(one.reason, one.before, one.after) for one in found.thresholds] == [("markup", 0.25, 0.5)]
    lines = {(one.source, one.stage, one.reason): (one.before, one.after) for one in found.funnel}
    assert lines["a", "filter", "markup"] == (None, 2)
    assert lines["a", "kept", None] == (6, 3)
    assert lines["b", "read", None] == (1, None)


def test_documents_with_one_identifier_are_held_against_each_other_in_order(tmp_path: Path) -> None:
    same = {"identifier": "again"}
    first = write(tmp_path / "first", [note("a", MARKUP)], [row("a", n) | same for n in range(3)])
    fates = [("kept", None), ("dropped", "markup"), ("kept", None), ("kept", None)]
    rows = [row("a", n, *fate) | same for n, fate in enumerate(fates)]
    second = write(tmp_path / "second", [note("a", MARKUP)], rows)
    assert changes(difference(first, second)) == {("a", "kept", "markup"): 1, ("a", ABSENT, "kept"): 1}


def test_lines_put_in_before_others_make_no_other_documents_of_these(tmp_path: Path) -> None:
    """A document without a name of its own is named by its line; its text tells that it is the same."""
    texts = [bytes([number + 1] * 32) for number in range(12)]
    first = write(
        tmp_path / "first", [note("a", MARKUP)], [row("a", n, sha256=text) for n, text in enumerate(texts)]
    )
    rows = [row("a", 0, sha256=bytes([99] * 32)), *(row("a", n + 1, sha256=text) for n, text in enumerate(texts))]
    rows[5] |= {"verdict": "dropped", "stage": "filter", "reason": "markup"}
    second = write(tmp_path / "second", [note("a", MARKUP)], rows)
    found = difference(first, second)
    assert changes(found) == {("a", "kept", "markup"): 1, ("a", ABSENT, "kept"): 1}
    assert (found.unchanged, found.changed_text) == (11, 0)


def test_documents_that_moved_to_another_source_are_told(tmp_path: Path) -> None:
    first = write(
        tmp_path / "first", [note("a", MARKUP), note("b")], [row("a", n) for n in range(5)] + [row("b", 9)]
    )
    moved = [row("b", n) for n in range(3)] + [row("b", 9)]
    second = write(tmp_path / "second", [note("a", MARKUP), note("b")], [row("a", 3), row("a", 4), *moved])
    found = difference(first, second)
    assert [(one.source, one.to_source, one.before, one.after, one.documents) for one in found.transitions] == [
        ("a", "b", "kept", "kept", 3)
    ]
    assert found.unchanged == 3


FATES = [("kept", None), ("held_out", None), ("dropped", "markup"), ("dropped", "symbols")]
DRAWN = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 5), st.sampled_from(FATES)), max_size=14
)


@settings(max_examples=15, deadline=None)
@given(DRAWN, DRAWN)
def test_parts_of_any_size_give_the_same_and_every_document_is_in_one_pair(
    tmp_path_factory: pytest.TempPathFactory, before: list[Any], after: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    sources = [note("a", MARKUP), note("b")]
    ledgers = []
    for name, drawn in (("first", before), ("second", after)):
        rows = [
            row(source, n, *fate, identifier=f"name {identifier}", sha256=bytes([text] * 32))
            for n, (source, identifier, text, fate) in enumerate(sorted(drawn, key=lambda one: one[0]))
        ]
        ledgers.append(write(folder / name, sources, rows))
    whole = difference(*ledgers)
    pairs = whole.unchanged + whole.changed_text + sum(one.documents for one in whole.transitions)
    gone = sum(one.documents for one in whole.transitions if one.after == ABSENT)
    come = sum(one.documents for one in whole.transitions if one.before == ABSENT)
    assert pairs - come == len(before)
    assert pairs - gone == len(after)
    backwards = difference(ledgers[1], ledgers[0])
    assert backwards.unchanged == whole.unchanged
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stoker.data.ledger.difference._ROWS_AT_A_TIME", 3)
        assert difference(*ledgers) == whole
