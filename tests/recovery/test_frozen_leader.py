"""A whole run whose leading node stops, is replaced, and comes back."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.record import Record
from tests.recovery.several_commands import Command, events, prepared, samples_are_exact, weights

pytestmark = pytest.mark.slow


def test_a_leader_that_was_stopped_for_long_is_replaced_and_follows_when_it_is_back(tmp_path: Path) -> None:
    recipe = prepared(
        tmp_path,
        training__steps=24,
        training__deterministic="across_layouts",
        training__micro_batch_size=1,
        layout={"dp_replicate": 2},
        checkpoint={"every": 1000},
        recovery={"ranks_per_node": 1, "copy_every": 1, "node_wait_seconds": 0.5},
    )
    undisturbed = Command(recipe, None, 1, run="runs/one-node")
    assert undisturbed.wait() == 0, undisturbed.said
    # Slow enough that there is something left to do when the first leader is back.
    slow = [f"slow_rank@{step}:0:strength=9,steps=100" for step in (4, 10)]
    given = {"fault": "+".join(slow), "frozen_seconds": 2.0}
    first = Command(recipe, "a", 2, **given)
    second = None
    try:
        first.wait_for("node a leads")
        second = Command(recipe, "b", 2, **given)
        _wait_for_step(first, 7)
        stopped = first.everything()
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        at_stop = _rows(first)
        second.wait_for("node a, which led, has given no sign of life for 2 s: taking over")
        second.wait_for("node b leads")
        _wait_for_attempt(second, 2)
        assert all(process.is_running() for process in stopped)
        for process in reversed(stopped):  # ranks first: they must wait by themselves
            process.send_signal(signal.SIGCONT)
        first.wait_for("node b leads now")
        codes = [first.wait(), second.wait()]
    finally:
        for one in (first, second):
            if one is not None:
                for process in one.everything() if one.process.is_alive() else []:
                    process.send_signal(signal.SIGCONT)
                one.end()
    assert codes == [0, 0], first.said + second.said
    assert weights(first.run) == weights(undisturbed.run)
    assert samples_are_exact(first.run)
    assert "follows the leader" in first.said.partition("node b leads now")[2]
    # What was led by the first is over when it stops, but for the step that was under way.
    assert _rows(first, attempt=1) <= at_stop + 1
    kinds = [e["event"] for e in events(first.run) if e["event"] not in ("fault", "ranks_ended")]
    assert kinds[:3] == ["node_joined", "failure", "shrunk"], first.said + second.said
    assert "node_joined" in kinds[3:], "the first leader has come back"


def _rows(command: Command, attempt: int | None = None) -> int:
    steps = Record(command.run.record).steps(["step", "attempt"], all_attempts=True)
    return steps.height if attempt is None else steps.filter(steps["attempt"] == attempt).height


def _wait_for_step(command: Command, step: int) -> None:
    _wait(command, lambda: (Record(command.run.record).steps(["step"])["step"].max() or 0) >= step)


def _wait_for_attempt(command: Command, attempt: int) -> None:
    _wait(command, lambda: max(Record(command.run.record).attempts(), default=0) >= attempt)


def _wait(command: Command, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 90
    while not (command.run.record.is_dir() and condition()):
        assert command.process.is_alive(), command.said
        assert time.monotonic() < until, command.said
        time.sleep(0.05)
