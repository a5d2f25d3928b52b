"""The monitor's process beside a command: it dies with the run, and the run not with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stoker.monitoring import Beside
from stoker.recipe import Recipe
from stoker.recipe.loading import load_recipe
from stoker.record import MONITOR, Record
from stoker.run_directory import RunDirectory
from tests.monitoring.watched_run import make_run, steps, wait_for

pytestmark = pytest.mark.slow
OWN = "alerts: {own: [{name: high, figure: loss, above: 1}], diagnose_seconds: 0.2, share_of_core: 1}\n"


class Told:
    def __init__(self, run: RunDirectory) -> None:
        self.lines: list[str] = []
        self.deaths: list[str] = []
        self.beside = Beside(run, self.recipe(run), self.lines.append, self.deaths.append)

    @staticmethod
    def recipe(run: RunDirectory) -> Recipe:
        return load_recipe(run.recipe).recipe

    def says(self, words: str) -> bool:
        self.beside.look_after()
        return any(words in line for line in self.lines)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path, OWN)


@pytest.fixture
def told(run: RunDirectory) -> Iterator[Told]:
    found = Told(run)
    yield found
    found.beside.end(0.0)


def monitors(run: RunDirectory) -> list[int]:
    """Processes that watch this run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(run.path) in (process.info["cmdline"] or []) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def test_what_it_finds_is_passed_on_and_it_ends_with_the_run(run: RunDirectory, told: Told) -> None:
    steps(run, 1, 20)
    wait_for(lambda: told.says("alert high firing"))
    [pid] = monitors(run)
    assert psutil.Process(pid).nice() > psutil.Process().nice()
    began = time.monotonic()
    told.beside.end(15.0)
    assert time.monotonic() - began < 10
    assert monitors(run) == []
    assert told.deaths == []
    assert [one["event"] for one in Record(run.record).events(MONITOR)] == ["alert"]


def test_its_death_is_noted_and_it_is_started_again_and_tells_nothing_twice(run: RunDirectory, told: Told) -> None:
    steps(run, 1, 20)
    wait_for(lambda: told.says("alert high firing"))
    [pid] = monitors(run)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: told.says("was killed by SIGKILL"))
    assert told.deaths == ["was killed by SIGKILL"]
    steps(run, 21, 30, gradient_norm=1e9)
    wait_for(lambda: told.says("alert gradient_norm firing"))
    assert monitors(run) not in ([], [pid])
    assert sum("alert high" in line for line in told.lines) == 1


def test_signals_to_the_group_are_not_the_monitors_to_judge(run: RunDirectory, told: Told) -> None:
    steps(run, 1, 20)
    wait_for(lambda: told.says("alert high firing"))
    [pid] = monitors(run)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    steps(run, 21, 30, gradient_norm=1e9)
    wait_for(lambda: told.says("alert gradient_norm firing"))
    assert told.deaths == []


def test_it_ends_when_the_command_is_killed(run: RunDirectory) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from stoker.monitoring import Beside\n"
        "from stoker.recipe.loading import load_recipe\n"
        "from stoker.run_directory import RunDirectory\n"
        "run = RunDirectory(Path(sys.argv[1]))\n"
        "beside = Beside(run, load_recipe(run.recipe).recipe, print, print)\n"
        "while True: beside.look_after(); time.sleep(0.05)\n"
    )
    steps(run, 1, 20)
    with subprocess.Popen([sys.executable, "-c", program, str(run.path)], stdout=subprocess.DEVNULL) as command:
        wait_for(lambda: Record(run.record).events(MONITOR))
        command.kill()
    wait_for(lambda: not monitors(run))


def test_a_run_that_asks_for_nothing_is_left_alone_at_first(tmp_path: Path) -> None:
    plain = Told(make_run(tmp_path))
    plain.beside.look_after()
    assert monitors(RunDirectory(tmp_path / "run")) == []
    plain.beside.end(1.0)


def test_another_monitor_is_not_disturbed(run: RunDirectory, told: Told) -> None:
    from stoker.monitoring.lock import held

    with held(run):
        wait_for(lambda: told.says("no monitor: "))
    assert any(f"process {os.getpid()} on " in line for line in told.lines)
