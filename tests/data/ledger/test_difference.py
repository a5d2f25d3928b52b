"""Two corpora are told apart document by document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

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
        row("c", 0),
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
