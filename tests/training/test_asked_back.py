"""A run that is asked to go back does so once, through the door of all other rollbacks, or says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.errors import NonFinite
from stoker.layout import Layout
from stoker.parallel import join_world, single_process_world
from stoker.recipe import Recipe
from stoker.record import Record
from stoker.training.asked_back import Requests
from stoker.training.interventions import Interventions
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from tests.distributed import run_ranks
from tests.training.test_telemetry import NOTHING, _recipe

STEPS, ASKED_IN = 12, 8
"""In the step after this one a request lies there."""


def _recipe_of(layout: Layout = Layout(), steps: int = STEPS, **recovery: Any) -> Recipe:  # noqa: B008
    recipe = _recipe(layout, NOTHING, steps=steps)
    settings = recipe.recovery.model_copy(update={"on_finding": "rollback", **recovery})
    return recipe.model_copy(update={"recovery": settings})


def _trainer(recipe: Recipe, corpus_folder: Path, run: Path, attempt: int = 1) -> Trainer:
    job = Job(recipe, run, corpus_folder, attempt)
    return build_trainer(job, single_process_world(torch.device("cpu")), StopRequest(), lambda message: None)


def _ask_during(trainer: Trainer, text: str, step: int = ASKED_IN) -> None:
    """Write the request while `step` is under way, the first time."""
    path, said = trainer.run.asked_back, []

    def heard(completed: int, phase: str) -> None:
        if completed == step - 1 and phase == "backward" and not said:
            said.append(True)
            path.write_text(text, encoding="utf-8")

    trainer.clock.marks.heard = heard


def _request(**changes: Any) -> str:
    finding = {"cause": "garbled_text", "first_step": 7, "last_step": 8}
    return json.dumps({"before_step": 7, "why": "garbled text", "finding": finding, "number": 1, **changes})


def _fit(trainer: Trainer) -> None:
    try:
        trainer.fit()
    finally:
        trainer.close()


def _events(run: Path, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in Record(run / "record").events() if event["event"] in kinds]


def test_it_goes_back_and_leaves_the_steps_at_fault_out(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(_recipe_of(), corpus.folder, tmp_path)
    _ask_during(trainer, _request())
    _fit(trainer)
    asked, went = _events(tmp_path, "asked_back", "went_back")
    assert asked["detail"] == {
        "number": 1,
        "why": "garbled text",
        "before_step": 7,
        "last_step": 8,
        "response": "rollback",
        "refused": None,
    }
    assert (asked["step"], went["step"]) == (9, 6)
    rows = Record(tmp_path / "record").steps(["skipped"])
    assert rows.filter(rows["skipped"])["step"].to_list() == [7, 8]
    assert rows["step"].to_list() == list(range(1, STEPS + 1))
    (decided,) = trainer.step.guard.interventions.decided
    assert (decided.action, decided.first_step, decided.last_step, decided.back_to) == ("skip", 7, 8, 6)
    assert trainer.step.guard.interventions.count == 3  # two steps and one way back


def test_what_was_answered_is_not_answered_again_after_a_restart(corpus: Corpus, tmp_path: Path) -> None:
    first = _trainer(_recipe_of(steps=10), corpus.folder, tmp_path)
    _ask_during(first, _request())
    _fit(first)
    assert Interventions.read(tmp_path / "interventions.json").answered == 1
    _fit(_trainer(_recipe_of(), corpus.folder, tmp_path, attempt=2))
    assert len(_events(tmp_path, "asked_back")) == 1
    third = _trainer(_recipe_of(steps=15), corpus.folder, tmp_path, attempt=3)
    _ask_during(third, _request(number=2, before_step=13, finding={}), step=13)
    _fit(third)
    assert [event["detail"]["number"] for event in _events(tmp_path, "asked_back")] == [1, 2]


@pytest.mark.parametrize(
    ("recovery", "request_", "why"),
    [
        ({"most_interventions": 0}, _request(), "most_interventions is 0"),
        ({}, _request(before_step=2, finding={}), "no earlier state"),
    ],
    ids=["too many", "no state"],
)
def test_a_refusal_is_recorded_and_the_run_goes_on(
    corpus: Corpus,
    tmp_path: Path,
    recovery: dict[str, Any],
    request_: str,
    why: str,
) -> None:
    trainer = _trainer(_recipe_of(**recovery), corpus.folder, tmp_path)
    _ask_during(trainer, request_)
    _fit(trainer)
    (asked,) = _events(tmp_path, "asked_back", "went_back")
    assert asked["detail"]["response"] == "wait"
    assert why in asked["detail"]["refused"]
    assert Record(tmp_path / "record").steps(["step"])["step"].to_list() == list(range(1, STEPS + 1))


def test_it_stops_where_the_recipe_says_ask(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(_recipe_of(on_finding="ask"), corpus.folder, tmp_path)
    _ask_during(trainer, _request())
    with pytest.raises(NonFinite, match="asked to go back before step 7"):
        _fit(trainer)
    _fit(_trainer(_recipe_of(on_finding="ask"), corpus.folder, tmp_path, attempt=2))
    assert len(_events(tmp_path, "asked_back")) == 1


@pytest.mark.parametrize("text", ["{", '{"before_step": 0, "number": 1}', '{"number": 1}', "[]", "\x00\xff"])
def test_a_damaged_request_is_said_once_and_ignored(
    corpus: Corpus,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    text: str,
) -> None:
    path = tmp_path / "asked_back.json"
    requests = Requests(path, 0)
    assert requests.look(10) is None
    path.write_text(text, encoding="latin-1")
    assert [requests.look(10) for _ in range(3)] == [None] * 3
    assert caplog.text.count("is ignored") == 1
    path.write_text(_request(number=3), encoding="utf-8")
    found = requests.look(10)
    assert found is not None
    assert found.number == 3
    assert requests.look(5) is None  # that step has not been done
    requests.answer(found)
    assert requests.look(10) is None


def test_nobody_looks_where_the_recipe_says_wait(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(_recipe_of(on_finding="wait"), corpus.folder, tmp_path)
    _ask_during(trainer, _request())
    _fit(trainer)
    assert not _events(tmp_path, "asked_back", "went_back")


def _on_rank(rank: int, ranks: int, store: Any, recipe: Recipe, corpus_folder: Path, run: Path) -> list[float]:
    torch.set_num_threads(1)
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        job = Job(recipe, run, corpus_folder, 1)
        trainer = build_trainer(job, world, StopRequest(), lambda message: None)
        if rank == 0:
            _ask_during(trainer, _request())
        _fit(trainer)
        return [one.tensor.detach().double().sum().item() for one in trainer.step.model.held]


@pytest.mark.slow
def test_all_ranks_go_back_together(corpus: Corpus, tmp_path: Path) -> None:
    recipe = _recipe_of(Layout(dp_replicate=2))
    one, other = run_ranks(_on_rank, 2, recipe, corpus.folder, tmp_path)
    assert one == other
    assert len(_events(tmp_path, "went_back")) == 1
