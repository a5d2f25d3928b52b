"""What a command says when it goes on from where an earlier one was, and how long it says it will take."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from stoker import console
from stoker.progress import Silent
from stoker.recipe import Recipe
from stoker.recipe.yaml_text import parse
from stoker.recovery.command import _Command
from stoker.recovery.supervisor import Supervisor
from tests.recipe.recipes import SMALL


class Heard(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def hears(saved: int, *messages: dict[str, Any]) -> list[str]:
    """What a command with a checkpoint of step `saved` says at `messages` of its supervisor."""
    heard, nothing = Heard(), SimpleNamespace()
    job: Any = SimpleNamespace(run=Path("nowhere"), recipe=Recipe.model_validate(parse(SMALL, "x").value))
    command = _Command(job, (), -1, nothing, lambda row: None, heard, nothing, None, saved)  # type: ignore[arg-type]
    for message in messages:
        command._hear(message)
    return heard.lines


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        (40, "going on after step 52 from copies in memory"),
        (52, "going on after step 52 from the checkpoint of step 52"),
    ],
    ids=["memory", "disk"],
)
def test_a_command_that_is_given_again_says_where_it_goes_on(saved: int, said: str) -> None:
    assert hears(saved, {"kind": "goes_on", "step": 52}) == [said]


def test_a_command_names_no_source_for_a_state_that_it_made_itself() -> None:
    """What was saved since it looked is newer than what it saw."""
    assert hears(0, {"kind": "step"}, {"kind": "goes_on", "step": 9}) == ["going on after step 9"]


@pytest.mark.parametrize(("step", "told"), [(0, []), (7, [{"kind": "goes_on", "step": 7}])], ids=["anew", "again"])
def test_a_supervisor_tells_after_which_step_the_ranks_begin(step: int, told: list[dict[str, Any]]) -> None:
    said: list[dict[str, Any]] = []
    supervisor = Supervisor.__new__(Supervisor)
    supervisor._failed, supervisor._tell = None, said.append
    supervisor._say_that_it_goes_on(step)
    assert said == told


def test_the_time_left_leaves_out_how_long_a_run_took_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    stream = StringIO()
    shown = console.Watched(Console(file=stream, force_terminal=False, width=200))
    with shown.task("train", 600, "steps") as task:
        task.advance(50)
        now[0] += 30.0  # starting up
        for _ in range(200):
            task.advance()
            now[0] += 0.1
    line = next(line for line in stream.getvalue().splitlines() if "left" in line)
    found = re.fullmatch(r"train: (\d+)/600 steps  10 steps/s  (\d+) s left", line)
    assert found is not None
    assert int(found[2]) == pytest.approx((600 - int(found[1])) / 10, abs=1)
