"""What is said of another threshold is what preparing with it does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.data.ledger import Ledger
from stoker.data.ledger.borderline import borderline
from stoker.data.ledger.what_if import what_if
from stoker.data.prepare import prepare
from stoker.errors import BadInput
from stoker.progress import Silent
from tests.data.ledger.drawn_ledger import MARKUP, SYMBOLS, note, row, write
from tests.data.small_corpus import sentence, small_recipe


def measured(
    number: int, markup: float, letters: float, verdict: str = "kept", reason: str | None = None
) -> dict[str, object]:
    measures = {"measure.filter.markup": markup, "measure.filter.letters": letters}
    return row("a", number, verdict, reason) | measures


def test_each_change_is_told_with_documents_bytes_and_tokens(tmp_path: Path) -> None:
    rows = [
        measured(0, 0.1, 0.9),
        measured(1, 0.2, 0.9),
        measured(2, 0.2, 0.9, "held_out"),
        measured(3, 0.3, 0.9, "dropped", "markup"),
        measured(4, 0.9, 0.9, "dropped", "markup"),
        measured(5, 0.3, 0.1, "dropped", "markup"),
        measured(6, 0.1, 0.1, "dropped", "symbols"),
        measured(7, 0.2, 0.9) | {"verdict": "dropped", "stage": "selection", "reason": "near_duplicate"},
        row("a", 8, "dropped", "empty", "reading"),
    ]
    ledger = write(tmp_path, [note("a", MARKUP, SYMBOLS)], rows)
    looser, stricter = what_if(ledger, {"markup": 0.5}), what_if(ledger, {"markup": 0.15})
    assert looser.total("passes") == (1, 100, 10)
    assert looser.total("other reason")[0] == 1
    assert looser.rows == {"passes": (3,), "other reason": (5,)}
    assert looser.later == ("quality", "selection")
    assert stricter.total("dropped") == (2, 200, 20)
    assert stricter.total("dropped before")[0] == 1
    assert stricter.rows == {"dropped": (1, 2), "dropped before": (7,)}
    assert what_if(ledger, {"markup": 0.25}).changed == ()


def test_a_rule_for_a_language_is_tried_on_documents_in_it_alone(tmp_path: Path) -> None:
    english = replace(MARKUP, languages=("en",))
    rows = [
        measured(number, 0.2, 0.9) | {"language": tag} for number, tag in enumerate(("en", "en-GB", "zh", None))
    ]
    ledger = write(tmp_path, [note("a", english, SYMBOLS)], rows)
    assert ledger.description.sources[0].operators[1].rules[0] == english
    assert what_if(ledger, {"markup": 0.15}).rows == {"dropped": (0, 1)}
    assert [one.row for one in borderline(ledger, "markup", 10, kept=True)] == [0, 1]


def test_copies_of_documents_that_would_go_are_counted(tmp_path: Path) -> None:
    copy = {"verdict": "dropped", "stage": "selection", "reason": "exact_duplicate", "duplicate_source": "a"}
    rows = [
        measured(0, 0.2, 0.9),
        measured(1, 0.1, 0.9) | copy | {"duplicate_of": "a/0.txt:1"},
        measured(2, 0.1, 0.9) | copy | {"duplicate_of": "a/0.txt:9"},
    ]
    ledger = write(tmp_path, [note("a", MARKUP)], rows)
    assert what_if(ledger, {"markup": 0.15}).orphans == 1


def test_a_reason_without_a_threshold_is_answered_with_those_that_have_one(tmp_path: Path) -> None:
    ledger = write(tmp_path, [note("a", MARKUP, SYMBOLS)], [measured(0, 0.1, 0.9)])
    with pytest.raises(
        BadInput, match="no rule with a threshold gives the reason `empty`; there are: markup, symbols"
    ):
        what_if(ledger, {"empty": 1.0})


def test_preparing_with_the_threshold_does_what_was_told(tmp_path: Path) -> None:
    """Documents with ever more tags: the ledger of one threshold tells the filter's verdicts of another."""
    import random

    draw = random.Random(2)
    texts = ["<b></b> " * tags + sentence(draw, 40) for tags in range(40) for _ in range(3)]
    (tmp_path / "pages.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts) + "\n")
    source = [{"name": "web", "paths": ["pages.jsonl"], "language": "en"}]
    ledgers = {}
    for threshold in (0.2, 0.4):
        cleaning = {"thresholds": {"markup": threshold}, "off": ["repeated_phrases", "commonest_phrase"]}
        ledgers[threshold] = Ledger(
            prepare(small_recipe(tmp_path, sources=source, cleaning=cleaning), Silent()).folder
        )
    dropped = {
        threshold: {row["position"] for row in ledger.sample("markup", 1000)}
        for threshold, ledger in ledgers.items()
    }
    assert 10 < len(dropped[0.4]) < len(dropped[0.2]) < 110
    looser = what_if(ledgers[0.2], {"markup": 0.4}, 1000)
    assert {row["position"] for row in ledgers[0.2].at(looser.rows["passes"])} == dropped[0.2] - dropped[0.4]
    stricter = what_if(ledgers[0.4], {"markup": 0.2}, 1000)
    told = [place for change in ("dropped", "dropped before") for place in stricter.rows.get(change, ())]
    assert {row["position"] for row in ledgers[0.4].at(told)} == dropped[0.2] - dropped[0.4]
