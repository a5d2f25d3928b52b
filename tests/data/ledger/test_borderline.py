"""The most doubtful documents of a threshold come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.data.ledger import Ledger
from stoker.data.ledger.borderline import borderline
from tests.data.ledger.drawn_ledger import MARKUP, SYMBOLS, note, row, write

SHARES = [0.9, 0.26, 0.05, 0.2, 0.25, 0.6, 0.30]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Documents whose share of markup is `SHARES`, and one of another source in which letters are the measure."""
    rows = [
        row("a", number, "dropped" if share > 0.25 else "kept", "markup" if share > 0.25 else None)
        | {"measure.filter.markup": share}
        for number, share in enumerate(SHARES)
    ]
    rows += [row("b", 0, "dropped", "symbols") | {"measure.filter.letters": 0.45}, row("b", 1)]
    return write(tmp_path, [note("a", MARKUP), note("b", SYMBOLS)], rows)


def test_what_was_only_just_dropped_comes_first(ledger: Ledger) -> None:
    found = borderline(ledger, "markup", 3)
    assert [round(one.value, 4) for one in found] == [0.26, 0.3, 0.6]
    assert found[0].distance == pytest.approx(0.04, rel=1e-4)
    assert [ledger.at([one.row])[0]["identifier"] for one in found] == ["a/0.txt:2", "a/0.txt:7", "a/0.txt:6"]


def test_what_was_only_just_kept_comes_first_of_what_was_kept(ledger: Ledger) -> None:
    assert [round(one.value, 4) for one in borderline(ledger, "markup", 9, kept=True)] == [0.25, 0.2, 0.05]


def test_a_threshold_from_below_is_approached_from_below(ledger: Ledger) -> None:
    (found,) = borderline(ledger, "symbols", 9)
    assert (found.measure, found.threshold) == ("filter.letters", 0.5)
    assert found.distance == pytest.approx(0.1, rel=1e-4)
    assert borderline(ledger, "symbols", 9, kept=True) == []  # nothing was measured on the other one


def test_a_reason_without_a_threshold_has_no_border(ledger: Ledger) -> None:
    assert borderline(ledger, "near_duplicate", 5) == []
