"""A mixture that changes as the recipe has it is no fault; one that changes otherwise is, in stages too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stoker.data.feeding.staged_mixture import StagedMixture
from stoker.diagnosis.finding import Finding
from stoker.diagnosis.mixture_change import find_mixture_changes
from stoker.diagnosis.planned_mixture import PlannedMixture, without_planned
from stoker.diagnosis.remedies import remedy
from stoker.recipe import Recipe
from stoker.run_directory import RunDirectory

NAMES = ("a", "b", "c")
STEPS, BATCH = 300, 16


def recipe_with(stages: list[dict[str, object]]) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "small",
            "data": {
                "sources": [{"name": name, "paths": ["text"]} for name in NAMES],
                "mixture": {"stages": stages},
            },
            "model": {"hidden_size": 8, "layers": 1, "heads": 2, "ffn_hidden_size": 16},
            "training": {"steps": STEPS, "sequence_length": 8, "global_batch_size": BATCH},
        }
    )


def planned_by(folder: Path, stages: list[dict[str, object]]) -> PlannedMixture:
    folder.mkdir(exist_ok=True)
    run = RunDirectory(folder)
    sources = [{"name": name, "splits": {"train": {"tokens": 10_000}}} for name in NAMES]
    run.corpus.write_text(json.dumps({"sources": sources}))
    found = PlannedMixture.of(run, recipe_with(stages))
    assert found is not None
    return found


def tokens_of(planned: PlannedMixture) -> dict[str, np.ndarray]:
    """Tokens of each source in each step, as a run records them: none where it has none."""
    sources, _ = StagedMixture(planned.segments).locate(np.arange(STEPS * BATCH))
    counts = np.stack([np.bincount(own, minlength=3) for own in sources.reshape(STEPS, BATCH)]).T * 8.0
    return {name: np.where(own > 0, own, np.nan) for name, own in zip(NAMES, counts, strict=True)}


JUMP: list[dict[str, object]] = [
    {"until": 150, "weights": {"a": 0.7, "b": 0.3}},
    {"weights": {"a": 0.2, "b": 0.3, "c": 0.5}},
]
RAMP: list[dict[str, object]] = [
    {"until": 100, "weights": {"a": 0.9, "b": 0.1}},
    {"until": 112, "change": "linear", "weights": {"b": 0.2, "c": 0.8}},
    {"weights": {"b": 0.2, "c": 0.8}},
]
STEP_NUMBERS = np.arange(1, STEPS + 1)


@pytest.mark.parametrize("stages", [JUMP, RAMP])
def test_a_planned_change_is_none_and_without_the_plan_it_is_one(
    tmp_path: Path, stages: list[dict[str, object]]
) -> None:
    planned = planned_by(tmp_path, stages)
    tokens = tokens_of(planned)
    assert find_mixture_changes(STEP_NUMBERS, tokens)
    assert find_mixture_changes(STEP_NUMBERS, tokens, planned.shares(STEP_NUMBERS)) == []


def test_an_unplanned_change_in_a_later_stage_is_found_with_the_shares_that_were_meant(tmp_path: Path) -> None:
    planned = planned_by(tmp_path, JUMP)
    tokens = tokens_of(planned)
    wrong = slice(220, 260)
    whole = np.nansum(np.stack(list(tokens.values())), axis=0)[wrong]
    tokens["c"][wrong], tokens["a"][wrong], tokens["b"][wrong] = whole, np.nan, np.nan
    (found,) = find_mixture_changes(STEP_NUMBERS, tokens, planned.shares(STEP_NUMBERS))
    assert (found.first_step, found.last_step, found.sources) == (221, 260, ("c",))
    by_measure = {one.measure: one for one in found.evidence}
    evidence = by_measure["share of c in the tokens"]
    assert evidence.expected == pytest.approx(0.5, abs=0.02)
    assert evidence.observed == pytest.approx(1.0, abs=0.02)


def test_a_change_that_was_planned_and_did_not_come_is_found(tmp_path: Path) -> None:
    planned = planned_by(tmp_path, JUMP)
    never = tokens_of(planned_by(tmp_path / "other", [{"weights": {"a": 0.7, "b": 0.3}}]))
    (found,) = find_mixture_changes(STEP_NUMBERS, never, planned.shares(STEP_NUMBERS))
    assert found.first_step == pytest.approx(151, abs=2)


def _findings(*found: tuple[str, int]) -> list[Finding]:
    common = {"severity": "warning", "confidence": 0.9, "evidence": (), "remedy": remedy("check_mixture", step=1)}
    return [Finding(kind=kind, first_step=step, last_step=step + 20, **common) for kind, step in found]


def test_a_rise_of_the_loss_is_put_down_to_the_plan_only_where_the_mixture_changes(tmp_path: Path) -> None:
    planned = planned_by(tmp_path, JUMP)
    level = {"a": np.full(STEPS, 2.0), "c": np.where(STEP_NUMBERS > 150, 9.0, np.nan)}
    rises = _findings(("step_rise", 90), ("divergence", 151), ("step_drop", 155), ("step_rise", 240), ("nan", 151))
    left = without_planned(rises, planned, STEP_NUMBERS, level)
    assert [(one.kind, one.first_step) for one in left] == [("step_rise", 90), ("step_rise", 240), ("nan", 151)]


def test_a_divergence_at_a_planned_change_is_one_when_the_loss_of_a_source_rises_too(tmp_path: Path) -> None:
    planned = planned_by(tmp_path, JUMP)
    risen = {"a": np.where(STEP_NUMBERS > 150, 2.4, 2.0), "b": np.full(STEPS, 2.0)}
    (left,) = without_planned(_findings(("divergence", 151)), planned, STEP_NUMBERS, risen)
    assert left.kind == "divergence"


def test_a_run_without_stages_or_manifest_has_no_plan(tmp_path: Path) -> None:
    assert PlannedMixture.of(RunDirectory(tmp_path), recipe_with(JUMP)) is None
    assert PlannedMixture.of(RunDirectory(tmp_path), recipe_with([])) is None
    assert PlannedMixture.of(RunDirectory(tmp_path), None) is None
