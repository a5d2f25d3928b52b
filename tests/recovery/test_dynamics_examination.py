"""Cases of the doctor's examination are runs that can be, and its marks are right."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.examination_cases import CAUSES, CLEAN, Case, draw_case
from benchmarks.examination_marks import f1_by_cause, mark, tables

from stoker.recipe import Recipe
from stoker.recovery.dynamics.kinds import BAD_TEXT, DYNAMICS, cause_of
from stoker.recovery.dynamics.possible import require_possible_course
from stoker.recovery.faults import parse_fault, require_possible


@pytest.mark.parametrize("cause", [*CAUSES, CLEAN])
def test_every_drawn_case_is_a_run_that_can_have_its_faults(cause: str) -> None:
    for seed in (*range(12), *range(1_000_000, 1_000_012)):
        case = draw_case(cause, seed)
        recipe = Recipe.model_validate(case.recipe)
        for text in case.faults:
            fault = parse_fault(text)
            require_possible(fault, recipe, nodes=1)
            require_possible_course(fault, recipe)
            if fault.goes_on and cause not in (CLEAN, "clipping_off"):
                assert fault.cause == cause
        assert draw_case(cause, seed) == case


def test_every_kind_of_fault_is_examined() -> None:
    causes = {cause_of(kind, what) for kind in DYNAMICS for what in BAD_TEXT}
    assert causes <= set(CAUSES)
    assert len(CAUSES) >= 20


def finding(kind: str, cause: str, first: int | None, severity: str = "warning", **others: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "cause": cause,
        "first_step": first,
        "severity": severity,
        "ranks": [],
        "sources": [],
        "documents": [],
        **others,
    }


def told(*findings: dict[str, Any], samples: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"error": None, "findings": list(findings), "samples": list(samples)}


SLOW = Case("slow_compute", 1, {"layout": {"dp_replicate": 2}}, kinds=("slow_rank",), step=100, late=5, rank=1)
HTML = Case("html_text", 1, {"layout": {"dp_replicate": 1}}, kinds=("spike",), step=100)
NOTHING = Case(CLEAN, 1, {"layout": {"dp_replicate": 1}})


def test_cause_kind_step_and_rank_are_marked_each() -> None:
    right = mark(SLOW, told(finding("slow_rank", "slow_compute", 104, ranks=[1])))
    assert (right.said, right.kind, right.step, right.culprit) == ("slow_compute", True, True, True)
    wrong = mark(SLOW, told(finding("stall", "unknown", 106, ranks=[0])))
    assert (wrong.said, wrong.kind, wrong.step, wrong.culprit) == ("unknown", False, False, False)
    assert mark(SLOW, told(finding("slow_rank", "slow_compute", 104, "note", ranks=[1]))).culprit
    nothing = mark(SLOW, told())
    assert (nothing.said, nothing.kind, nothing.step, nothing.culprit) == (CLEAN, False, False, False)


@pytest.mark.parametrize(("documents", "named"), [([[700, 710]], True), ([[712, 720]], False), ([], False)])
def test_documents_are_named_where_a_bad_one_is_among_them(documents: list[list[int]], named: bool) -> None:
    marked = mark(HTML, told(finding("spike", "html_text", 100, documents=documents), samples=(705, 711)))
    assert marked.culprit is named


def test_a_run_without_fault_is_marked_by_what_is_more_than_a_note() -> None:
    assert not mark(NOTHING, told(finding("spike", "unknown", 3, "note"))).above_note
    marked = mark(NOTHING, told(finding("spike", "html_text", 3)))
    assert (marked.above_note, marked.said, marked.kind, marked.step) == (True, "html_text", None, None)


def test_f1_counts_what_is_named_wrongly_against_the_cause() -> None:
    pairs = [("a", "a"), ("a", "b"), ("b", "b"), ("b", "b")]
    assert f1_by_cause(pairs) == {"a": pytest.approx(2 / 3), "b": pytest.approx(4 / 5)}
    assert f1_by_cause(pairs, ["b", "clean"]) == {"a": pytest.approx(2 / 3), "b": pytest.approx(4 / 6)}


def test_the_tables_hold_everything() -> None:
    marked = [
        mark(SLOW, told(finding("slow_rank", "slow_compute", 104, ranks=[1]))),
        mark(HTML, told(finding("spike", "garbled_text", 100, documents=[[1, 2]]), samples=(1,))),
        mark(NOTHING, told()),
        mark(NOTHING, {"error": "it was killed", "findings": [], "samples": []}),
    ]
    said = tables(marked)
    assert "| macro-F1 of the first-named cause | 0.500 | 0.90 |" in said
    assert "| html_text | garbled_text 1 |" in said
    assert "0.000 of 1" in said
    assert "1 runs failed: clean-1: it was killed" in said
