"""Causes planted into drawn runs: each is named first, at its step, with its ranks and documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stoker.diagnosis import Finding, find_all
from stoker.diagnosis.causes import CATALOGUE
from stoker.diagnosis.causes.page import page
from stoker.diagnosis.remedies import REMEDIES
from tests.diagnosis.planted_causes import EARLY, PLANTED, SAMPLES, drawn

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
SEEDS = (1000, 1002)
CLEAN = 12
OF_TEXT = ("garbled_text", "html_text", "wrong_language", "repeated_text", "tokenizer_mismatch")
OF_ONE_RANK = ("slow_compute", "throttled_rank", "memory_leak")
PARTS = {"slow_compute": "compute", "throttled_rank": "compute", "loader_starvation": "data",
         "slow_network": "communication", "communication_jitter": "communication"}  # fmt: skip


def found_in(cause: str, seed: int) -> tuple[Finding, int]:
    """The first finding, and the step that the cause was planted at."""
    run = drawn(seed)
    at = PLANTED[cause](run)
    found = find_all(run.as_rows())
    assert found, f"seed {seed}: nothing was found"
    return found[0], int(run.columns["step"][at])


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_named_first_at_its_step(cause: str) -> None:
    (section,) = (one for one in CATALOGUE if one.name == cause)
    for seed in SEEDS:
        finding, step = found_in(cause, seed)
        assert finding.cause == cause, f"seed {seed}: {finding}"
        assert finding.kind in section.kinds
        assert finding.first_step is not None
        assert -3 <= finding.first_step - step <= EARLY.get(cause, 3), f"seed {seed}"
        if cause in OF_ONE_RANK:
            assert finding.ranks == (1,)
        assert finding.part == PARTS.get(cause)


@pytest.mark.parametrize("cause", OF_TEXT)
def test_bad_text_is_named_with_its_samples_and_documents(cause: str) -> None:
    finding, step = found_in(cause, SEEDS[0])
    named = {sample for first, last in finding.documents for sample in range(first, last + 1)}
    bad = set(range((step - 1) * SAMPLES, (step + 1) * SAMPLES, 2))
    assert len(named & bad) >= 3
    assert not named - bad
    assert finding.severity == "warning"
    assert finding.names


def test_runs_without_incident_have_nothing_above_a_note() -> None:
    alarmed = {
        seed: [(one.kind, one.cause) for one in find_all(drawn(seed).as_rows()) if one.severity != "note"]
        for seed in range(CLEAN)
    }
    assert not {seed: found for seed, found in alarmed.items() if found}


def test_a_cause_that_nothing_speaks_for_is_unknown() -> None:
    run = drawn(5)
    run.columns["loss"][120:] *= 2.0
    (finding, *_) = find_all(run.as_rows(with_text=False))
    assert (finding.kind, finding.cause, finding.score) == ("divergence", "unknown", None)


def test_the_runners_up_are_kept_with_what_speaks_for_and_against_them() -> None:
    finding, _ = found_in("garbled_text", SEEDS[0])
    others = {one.cause: one for one in finding.alternatives}
    assert finding.score is not None
    assert all(one.score <= finding.score for one in others.values())
    assert others["hard_documents"].speaks_for
    assert others["hard_documents"].speaks_against


def test_slow_causes_are_warned_of_long_before_the_loss_moves() -> None:
    run = drawn(3)
    at = PLANTED["attention_logit_growth"](run)
    step = int(run.columns["step"][at])
    seen = run.as_rows()
    for own in run.modules.values():
        kept = own["step"] <= step + 20
        for name in own:
            own[name] = own[name][kept]
    early = find_all(run.as_rows())
    assert [one.cause for one in find_all(seen)][:1] == ["attention_logit_growth"]
    assert [(one.kind, one.cause, one.severity) for one in early][:1] == [
        ("logit_growth", "attention_logit_growth", "warning")
    ]


@pytest.mark.parametrize("rows", [5, 8, 12])
def test_a_slow_rank_is_found_within_five_steps(rows: int) -> None:
    run = drawn(11)
    at = 140
    for name in ("forward", "backward", "optimizer"):
        run.own[1][f"seconds.{name}"][at:] *= 1.4
    for own in run.own:
        own["work_seconds"] = sum(own[f"seconds.{name}"] for name in ("forward", "backward", "optimizer"))
        own["seconds.total"] = own["work_seconds"] + own["seconds.data"] + own["seconds.communication"]
    run.columns = {name: values[: at + rows] for name, values in run.columns.items()}
    run.own = [{name: values[: at + rows] for name, values in own.items()} for own in run.own]
    found = [one for one in find_all(run.as_rows()) if one.kind == "slow_rank"]
    assert [(one.ranks, one.part) for one in found] == [((1,), "compute")]
    assert abs((found[0].first_step or 0) - at) <= 3


def test_a_record_without_the_newer_fields_is_weighed_as_far_as_it_goes() -> None:
    run = drawn(1000)
    at = PLANTED["learning_rate_jump"](run)
    for name in ("update_norm", "batch_digest", "clipped", "accumulation", "tokens"):
        del run.columns[name]
    run.own = [{"seconds.total": own["seconds.total"]} for own in run.own]
    run.columns["loss"][3] = np.nan
    run.columns["gradient_norm"][5] = np.inf
    causes = {one.cause: one for one in find_all(run.as_rows(with_text=False))}
    assert abs((causes["learning_rate_jump"].first_step or 0) - run.columns["step"][at]) <= 3


def test_the_page_is_made_from_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(PAGE.read_text(encoding="utf-8")), (
        "make it anew: python -m stoker.diagnosis.causes docs/diagnosis.md > page && mv page docs/diagnosis.md"
    )


def test_every_section_is_whole() -> None:
    assert len({one.name for one in CATALOGUE}) == len(CATALOGUE)
    for one in CATALOGUE:
        assert one.kinds
        assert one.remedy is None or one.remedy in REMEDIES
        assert all((one.signature, one.false_friends, one.source))
