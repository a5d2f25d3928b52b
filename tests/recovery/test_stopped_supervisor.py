"""A supervisor that is stopped watches over nobody: it is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from stoker.record import SUPERVISOR, Record
from tests.end_to_end.small_job import command, write_job
from tests.preloaded import environment

pytestmark = pytest.mark.slow


def _supervisor(pid: int) -> psutil.Process | None:
    """The child that has children of its own: the ranks."""
    return next((child for child in psutil.Process(pid).children() if child.children()), None)


def test_a_supervisor_that_is_stopped_is_replaced_and_the_run_ends(tmp_path: Path) -> None:
    recipe = write_job(tmp_path, training__steps=100, checkpoint__every=100, evaluation__every=0)
    recipe.write_text(recipe.read_text() + "recovery: {copy_every: 1}\n")
    record = Record(tmp_path / "runs/small/record")
    with subprocess.Popen(command("train", recipe), env=environment(), stdout=subprocess.DEVNULL) as process:
        try:
            while len(record.steps(["step"])) < 2:
                assert process.poll() is None
                time.sleep(0.05)
            supervisor = _supervisor(process.pid)
            assert supervisor is not None
            os.kill(supervisor.pid, signal.SIGSTOP)
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()
    steps = record.steps(["step"])["step"].to_list()
    assert steps == list(range(1, 101))
    died = [event for event in record.events(SUPERVISOR) if event["event"] == "supervisor_died"]
    assert len(died) == 1
    assert not psutil.pid_exists(supervisor.pid)
