"""`stoker diagnose --replay`: suspected batches are computed once more, on other states and in another process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stoker.dashboard.moment import documents_of
from stoker.dashboard.watched import WatchedRun
from stoker.data.corpus import Corpus
from stoker.data.feeding.as_recorded import FeedAsRecorded
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
from stoker.record import Record
from stoker.replay import _as_recorded, replay_steps
from stoker.run_directory import RunDirectory
from stoker.training.origin import corpus_of
from tests.changed_imports import python_path_that_changes
from tests.end_to_end.small_job import command, stoker
from tests.preloaded import environment
from tests.recovery.dynamic_runs import small_corpus
from tests.replayed_runs import AT, run_with

pytestmark = pytest.mark.slow
FACTOR = " of its batch over a usual one's, on the weights of step 72"
TWO_PROCESSES = "losses and gradients of two processes, from the same weights and batch"
_WRONG_IN_THE_SECOND_PROCESS = """
tried = module._tried
def tried_by_a_wrong_machine(trial, model, *others):
    if trial.process == 1:
        model.held[-1].parameter.data.view(-1)[0] *= 1.5
    return tried(trial, model, *others)
module._tried = tried_by_a_wrong_machine
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def bad_text(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Garbled text in one step of a run that has learned its text."""
    fault = f"bad_data@{AT}:what=garbled,steps=1"
    return run_with(corpus, tmp_path_factory.mktemp("bad text"), fault, learning_rate=5e-3)


@pytest.fixture(scope="module")
def wrong_rank(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One bit of one gradient changed in one step."""
    return run_with(corpus, tmp_path_factory.mktemp("wrong rank"), f"bitflip_local_gradient@{AT}:bit=30")


def spike_of(told: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in told["findings"] if one["kind"] == "spike" and one["first_step"] == AT]
    return found


def evidence_of(finding: dict[str, Any], measure: str) -> dict[str, Any] | None:
    return next((one for one in finding["evidence"] if one["measure"] == measure), None)


def test_a_bad_batch_is_bad_on_other_weights_too(bad_text: RunDirectory) -> None:
    result = stoker("diagnose", bad_text.path, "--replay", "--json")
    assert result.returncode == 0, result.stderr
    spike = spike_of(json.loads(result.stdout))
    seen = evidence_of(spike, "loss" + FACTOR)
    assert seen is not None
    assert seen["observed"] > 2
    assert spike["cause"] in ("garbled_text", "hard_documents")
    assert evidence_of(spike, TWO_PROCESSES) is None


def test_what_a_machine_got_wrong_does_not_come_out_again(wrong_rank: RunDirectory) -> None:
    before = spike_of(json.loads(stoker("diagnose", wrong_rank.path, "--json").stdout))
    assert evidence_of(before, "gradient norm")["observed"] > 3 * evidence_of(before, "gradient norm")["expected"]  # type: ignore[index]
    result = stoker("diagnose", wrong_rank.path, "--replay", "--json")
    assert result.returncode == 0, result.stderr
    spike = spike_of(json.loads(result.stdout))
    assert spike["cause"] == "wrong_numbers"
    seen = evidence_of(spike, "gradient norm" + FACTOR)
    assert seen is not None
    assert seen["observed"] < 1.5


def test_a_machine_that_is_wrong_now_disagrees_with_the_other_process(
    wrong_rank: RunDirectory, tmp_path: Path
) -> None:
    paths = python_path_that_changes("stoker.replay", _WRONG_IN_THE_SECOND_PROCESS, tmp_path / "changed")
    result = subprocess.run(
        command("diagnose", wrong_rank.path, "--replay", "--json"),
        capture_output=True,
        text=True,
        timeout=240,
        env={**environment(), "PYTHONPATH": paths},
    )
    assert result.returncode == 0, result.stderr
    spike = spike_of(json.loads(result.stdout))
    seen = evidence_of(spike, TWO_PROCESSES)
    assert seen is not None
    assert (seen["expected"], seen["observed"]) == ("the same", "different")
    assert spike["cause"] == "wrong_numbers"


def test_a_step_comes_out_as_it_was_recorded_where_the_state_before_it_is_saved(bad_text: RunDirectory) -> None:
    """Of a run of one rank to the last bits; and each incident takes five trials."""
    replay = replay_steps(bad_text, [AT], Silent())[AT]
    rows = Record(bad_text.record).steps(["loss", "gradient_norm"])
    recorded = rows.filter(pl.col("step") == AT).row(0, named=True)
    first, usual, other, later, later_usual = replay.trials
    assert (first.batch, first.state, first.process) == (AT, AT - 1, 0)
    assert first.loss == pytest.approx(recorded["loss"], rel=1e-9)
    assert first.gradient_norm == pytest.approx(recorded["gradient_norm"], rel=1e-6)
    assert (other.batch, other.state, other.process) == (AT, AT - 1, 1)
    assert (other.loss, other.bits) == (first.loss, first.bits)
    assert len(first.bits) == 33
    assert replay.repeats is True
    assert (usual.batch, usual.state) == (AT + 8, AT - 1)
    assert (later.batch, later.state, later_usual.batch) == (AT, 84, AT + 8)
    assert later.loss > 2 * later_usual.loss


def test_a_step_is_replayed_with_the_samples_that_it_was_given(corpus: Corpus, tmp_path: Path) -> None:
    run = run_with(corpus, tmp_path, "repeat_batch@20:steps=2,strength=0.5")
    recipe = load_recipe(run.recipe).recipe
    feed = FeedAsRecorded(corpus_of(run), recipe, _as_recorded(run)[0])
    digests = Record(run.record).steps(["batch_digest"])
    for step, digest, _ in digests.iter_rows():
        assert feed.digest(step) == digest


def test_the_page_says_of_a_step_that_it_was_given_other_text(corpus: Corpus, tmp_path: Path) -> None:
    run = WatchedRun(run_with(corpus, tmp_path, "repeat_batch@20:steps=2,strength=0.5"))
    run.refresh()
    assert [documents_of(run, step)["others"] for step in (19, 20, 21, 22)] == [False, True, True, False]
