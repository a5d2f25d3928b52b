"""What computing suspected batches once more says, on the states of a run that was trained."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.diagnosis import find_all
from stoker.diagnosis.replayed import Replay, Trial, worth_replaying
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.replay import replay_steps
from stoker.run_directory import RunDirectory
from tests.diagnosis.planted_causes import PLANTED, drawn

pytestmark = pytest.mark.slow


def trials(suspected: float, usual: float, again: float | None = None) -> Replay:
    last = () if again is None else (Trial(120, 100, again, process=1),)
    return Replay(120, 128, (Trial(120, 100, suspected), Trial(128, 100, usual), *last))


def test_a_batch_that_is_as_bad_on_other_weights_is_at_fault_itself() -> None:
    replay = trials(3.0, 2.0, 3.0)
    assert replay.excess() == pytest.approx(math.log(1.5))
    assert replay.repeats
    assert trials(2.0, 2.0, 2.1).repeats is False
    assert trials(math.nan, 2.0).excess() is None


def test_a_replay_moves_the_weight_of_causes_that_lie_in_the_batch() -> None:
    run = drawn(1000)
    at = PLANTED["garbled_text"](run)
    step = int(run.columns["step"][at])
    rows = run.as_rows()
    score = find_all(rows)[0].score or 0.0
    seen = float(run.columns["loss"][at] / run.columns["loss"][at - 1])

    def scored(suspected: float) -> float:
        replays = {step: Replay(step, step + 8, (Trial(step, 1, suspected), Trial(step + 8, 1, 1.0)))}
        weighed = find_all(replace(rows, replays=replays))[0]
        names = {weighed.cause: weighed.score, **{one.cause: one.score for one in weighed.alternatives}}
        return names["garbled_text"] or 0.0

    assert scored(seen) > score
    assert scored(1.0) < score


def test_incidents_of_the_pace_are_not_replayed() -> None:
    run = drawn(1000)
    PLANTED["slow_compute"](run)
    assert worth_replaying(tuple(find_all(run.as_rows()))) == []


def test_a_run_without_an_earlier_checkpoint_says_what_is_needed(tmp_path: Path) -> None:
    from tests.recipe.recipes import write_with_text

    recipe = write_with_text(tmp_path)
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.recipe.write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(BadInput, match="no checkpoint of a step before 50"):
        replay_steps(run, [50], Silent())
