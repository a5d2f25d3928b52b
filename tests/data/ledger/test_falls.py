"""A filter that falls on one kind of text is said to; one that is fair is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stoker.data.ledger import Ledger
from stoker.data.ledger.description import Description, OperatorNote, SourceNote
from stoker.data.ledger.falls import CUT_INSIDE, Fall, Grouping, all_falls, all_warnings, falls, warnings
from tests.data.ledger.drawn_ledger import MARKUP, SYMBOLS, note, row, write


def described(*sources: SourceNote) -> Description:
    return Description(0, sources, (), 8, 4)


def summed(*lines: tuple[str, dict[str, Any], int, int]) -> pl.DataFrame:
    """Summary of (source, group, documents kept, documents dropped as `markup`)."""
    blank = {"kind": "prose", "language": "en", "cjk": False, "formula": False, "code": False}
    rows = []
    for source, group, kept, dropped in lines:
        for verdict, stage, reason, documents in (
            ("kept", None, None, kept),
            ("dropped", "filter", "markup", dropped),
        ):
            rows.append(
                blank
                | group
                | {"source": source, "verdict": verdict, "stage": stage, "reason": reason}
                | {"documents": documents, "bytes": 100 * documents}
            )
    return pl.DataFrame(rows, schema_overrides={"stage": pl.String, "reason": pl.String})


def far(summary: pl.DataFrame, description: Description, by: Grouping) -> list[str]:
    return [cell.group for cell in falls(summary, description, by) if cell.far]


def test_a_reason_that_takes_much_more_of_one_kind_is_told_with_its_share() -> None:
    summary = summed(("a", {}, 9_900, 100), ("b", {"kind": "code"}, 700, 300))
    cells = falls(summary, described(note("a", MARKUP), note("b", MARKUP, kind="code")), "kind")
    assert [(cell.group, cell.documents, cell.reached, cell.far) for cell in cells] == [
        ("prose", 100, 10_000, False),
        ("code", 300, 1_000, True),
    ]
    (sentence,) = warnings(cells)
    assert (
        "`markup` (filter) takes 30.0% of the documents in code that reach it and 1.00% of the others" in sentence
    )


def test_languages_and_classes_of_text_are_groups_too() -> None:
    description = described(note("a", MARKUP))
    chinese = {"language": "zh", "cjk": True}
    summary = summed(("a", {}, 9_900, 100), ("a", chinese, 700, 300), ("a", {"language": None}, 99, 1))
    assert far(summary, description, "language") == ["zh"]
    assert far(summary, description, "content") == ["Chinese, Japanese or Korean"]
    assert len(all_warnings(summary, description)) == 2
    assert {cell.group for cell in falls(summary, description, "language")} == {"en", "zh", "unknown"}


def test_sources_of_which_a_rule_is_not_asked_are_no_measure_of_it() -> None:
    summary = summed(("a", {}, 900, 100), ("b", {"kind": "code"}, 10_000, 0))
    cells = falls(summary, described(note("a", MARKUP), note("b", SYMBOLS, kind="code")), "kind")
    assert [(cell.group, cell.others_reached, cell.far) for cell in cells] == [("prose", 0, False)]


def test_a_difference_that_is_real_but_small_or_large_but_a_handful_is_no_warning() -> None:
    both = described(note("a", MARKUP), note("b", MARKUP))
    assert far(summed(("a", {}, 980_000, 20_000), ("b", {"kind": "code"}, 970_000, 30_000)), both, "kind") == []
    assert far(summed(("a", {}, 10_000, 0), ("b", {"kind": "code"}, 6, 4)), both, "kind") == []


def test_fair_filters_are_almost_never_accused() -> None:
    """Over drawn tables in which every kind loses the same share, at most one in a hundred may have a warning."""
    draws = np.random.default_rng(5)
    description = described(note("a", MARKUP))
    accused = 0
    for _ in range(300):
        share = 10 ** draws.uniform(-3, -0.5)
        sizes = (10 ** draws.uniform(1, 4, 3)).astype(int)
        lost = draws.binomial(sizes, share)
        kinds = ("prose", "code", "mathematics")
        summary = summed(
            *(("a", {"kind": kind}, int(n - k), int(k)) for kind, n, k in zip(kinds, sizes, lost, strict=True))
        )
        accused += bool(far(summary, description, "kind"))
    assert accused <= 3


def test_documents_that_an_earlier_stage_dropped_did_not_reach_a_later_one(tmp_path: Path) -> None:
    rows = [row("a", number, "dropped", "markup", "filter") for number in range(6)]
    rows += [row("a", number, "dropped", "poor", "quality", kind="code") for number in range(6, 10)]
    rows += [row("a", number, kind="code") for number in range(10, 16)]
    ledger = write(tmp_path, [note("a", MARKUP)], rows)
    cells = {(cell.reason, cell.group): cell for cell in falls(ledger.summary(), ledger.description, "kind")}
    assert cells["markup", "prose"].share == 1.0
    assert ("poor", "prose") not in cells
    assert (cells["poor", "code"].documents, cells["poor", "code"].reached) == (4, 10)


def test_that_one_kind_is_repeated_more_often_is_no_fault_of_a_filter(tmp_path: Path) -> None:
    """The shares stand in the table all the same."""
    rows = [row("a", n) for n in range(300)]
    rows += [row("m", n, "dropped", "near_duplicate", "selection", kind="mathematics") for n in range(100)]
    rows += [row("m", 100 + n, kind="mathematics") for n in range(100)]
    ledger = write(tmp_path, [note("a"), note("m", kind="mathematics")], rows)
    cells = falls(ledger.summary(), ledger.description, "kind")
    assert {cell.group: cell.share for cell in cells} == {"prose": 0.0, "mathematics": 0.5}
    assert warnings(cells) == []


def test_what_cuts_inside_of_documents_emptied_is_judged_and_what_was_empty_is_not() -> None:
    summary = summed(("a", {}, 990, 10), ("a", {"formula": True}, 60, 40))
    description = described(note("a", MARKUP))
    for stage, group in (("filter", ["formulae"]), ("lines", ["formulae"]), ("reading", []), ("clean", [])):
        emptied = summary.with_columns(
            stage=pl.when(pl.col("stage").is_null()).then(None).otherwise(pl.lit(stage)),
            reason=pl.when(pl.col("reason").is_null()).then(None).otherwise(pl.lit("empty")),
        )
        assert far(emptied, description, "content") == group


LINES = SourceNote("web", "prose", None, (OperatorNote("lines", ("lines.furniture",), {}, ()),))


def cut_cells(folder: Path, cut: str, **cut_of: tuple[int, int]) -> list[Fall]:
    """What a ledger says of a cut in some of the documents of each class (those in Chinese are `cjk`)."""
    rows = [
        row("web", number, **{f"{name}_characters": 100, cut: float(number < cut_in)})
        for name, (cut_in, documents) in cut_of.items()
        for number in range(documents)
    ]
    rows += [row("web", number, "dropped", "markup", code_characters=100, **{cut: 1.0}) for number in range(50)]
    ledger = write(folder, [LINES], rows, several=100)
    return [
        cell
        for cell in all_falls(ledger.summary(), ledger.description, ledger.cuts(), "content")
        if cell.stage == CUT_INSIDE
    ]


def test_cuts_inside_of_documents_that_stay_are_split_by_class(tmp_path: Path) -> None:
    cells = cut_cells(tmp_path, "measure.lines.furniture", code=(40, 100), cjk=(10, 300), formula=(10, 300))
    assert [(cell.reason, cell.group, cell.documents, cell.reached, cell.far) for cell in cells] == [
        ("lines.furniture", "Chinese, Japanese or Korean", 10, 300, False),
        ("lines.furniture", "formulae", 10, 300, False),
        ("lines.furniture", "code", 40, 100, True),
    ]
    (sentence,) = warnings(cells)
    assert "`lines.furniture` cuts something out of 40.0% of the documents in code that stay and 3.33%" in sentence


def test_a_cut_that_falls_alike_is_in_the_table_and_no_cause_for_a_warning(tmp_path: Path) -> None:
    cells = cut_cells(tmp_path, "measure.lines.furniture", code=(10, 100), cjk=(30, 300))
    assert {cell.group: cell.share for cell in cells} == {"code": 0.1, "Chinese, Japanese or Korean": 0.1}
    assert warnings(cells) == []


def test_repeated_passages_that_are_cut_are_no_cause_for_a_warning(tmp_path: Path) -> None:
    cells = cut_cells(tmp_path, "repeated_lines", code=(40, 100), cjk=(1, 300))
    assert [(cell.group, cell.documents) for cell in cells] == [("Chinese, Japanese or Korean", 1), ("code", 40)]
    assert warnings(cells) == []


def test_documents_that_were_not_looked_at_for_a_cut_do_not_count_as_spared(tmp_path: Path) -> None:
    """The measure is null in one source, and furniture of hosts is in no document of it."""
    rows = [row("web", n, code_characters=100, **{"measure.lines.furniture": float(n < 50)}) for n in range(100)]
    rows += [row("web", 100 + n, host_furniture=7 if n < 50 else None) for n in range(100)]
    rows += [row("files", n, cjk_characters=100) for n in range(500)]
    files = SourceNote("files", "code", None, ())
    ledger = write(tmp_path, [LINES, files], rows, several=100)
    cells = all_falls(ledger.summary(), ledger.description, ledger.cuts(), "content")
    assert {(cell.reason, cell.group): (cell.documents, cell.reached) for cell in cells} == {
        ("lines.furniture", "code"): (50, 100),
        ("host_furniture", "code"): (0, 100),
        ("host_furniture", "none of these"): (50, 100),
    }


def test_a_ledger_of_before_says_nothing_of_cuts(tmp_path: Path) -> None:
    assert cut_cells(tmp_path, "measure.lines.furniture", code=(40, 100), cjk=(10, 300))
    (tmp_path / "ledger" / "cuts.parquet").unlink()
    ledger = Ledger(tmp_path)
    assert ledger.cuts() is None
    assert all_falls(ledger.summary(), ledger.description, ledger.cuts(), "content") == falls(
        ledger.summary(), ledger.description, "content"
    )
