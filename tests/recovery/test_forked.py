"""Work in a process of its own, which ends when whoever waits for it is asked to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
import typer

from stoker import cli
from stoker.errors import StokerError, Terminated
from stoker.recovery import drill
from stoker.recovery.faults import parse_fault
from stoker.recovery.forked import Forked, Stopped
from stoker.run_directory import RunDirectory


def _fail(error: Exception) -> None:
    raise error


def _signal_self(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def test_what_is_asked_to_stop_is_told_from_what_fails() -> None:
    with pytest.raises(Stopped, match=r"asked to stop \(exit code 143\)"):
        Forked("the work", _fail, Terminated("asked to stop")).result()
    with pytest.raises(Stopped, match="the work was killed by SIGTERM"):
        Forked("the work", _with_default_sigterm).result()
    with pytest.raises(StokerError, match="disk full") as failed:
        Forked("the work", _fail, OSError("disk full")).result()
    assert not isinstance(failed.value, Stopped)


def _with_default_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _signal_self(signal.SIGTERM)


def test_waiting_for_work_ends_at_once_with_a_signal_and_so_does_the_work() -> None:
    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated("ended by SIGTERM")

    before = signal.signal(signal.SIGTERM, end)
    try:
        work = Forked("the work", time.sleep, 60)
        (child,) = (one for one in psutil.Process().children() if one.pid == work._process.pid)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        with pytest.raises(Terminated):
            work.result()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - began < 20
    assert not child.is_running()


@pytest.mark.parametrize(
    ("fault", "error", "raised"),
    [
        ("kill@3:0", Stopped("asked to stop"), Terminated),
        ("kill@3:0", Terminated("ended by SIGTERM"), Terminated),
        ("sigterm@3:0", Stopped("asked to stop"), None),
        ("kill@3:0", StokerError("it gave up"), None),
    ],
    ids=["run-asked-from-outside", "drills-asked", "a-fault-asked", "failed"],
)
def test_a_signal_from_outside_is_put_down_to_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, error: StokerError, raised: type[Exception] | None
) -> None:
    def fails(function: Any, *given: Any, what: str) -> set[str]:
        if what == "the command":
            raise error
        return set()

    monkeypatch.setattr(drill, "_in_a_process", fails)
    given: tuple[Any, ...] = (None, RunDirectory(tmp_path), (parse_fault(fault),), 1, False)
    if raised is None:
        assert drill._command(*given)[:2] == (False, str(error))
    else:
        with pytest.raises(raised):
            drill._command(*given)


@pytest.mark.parametrize("stop", [Terminated("ended by SIGTERM"), KeyboardInterrupt()], ids=["sigterm", "ctrl-c"])
def test_drills_that_are_asked_to_stop_say_so_and_end_with_143(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, stop: BaseException
) -> None:
    def asked(*given: Any) -> None:
        raise stop

    verb: Any = sys.modules["stoker.cli.drill"]  # the package gives the function of that name
    monkeypatch.setattr(verb, "load", lambda *given, **options: _Loaded(tmp_path))
    monkeypatch.setattr(drill, "rehearse", asked)
    with pytest.raises(typer.Exit) as ended:
        cli.drill(tmp_path / "recipe.yaml", fault=["kill@3:0"])
    assert ended.value.exit_code == 143
    assert "stoker: stopped" in capsys.readouterr().err


class _Loaded:
    recipe = None

    def __init__(self, folder: Path) -> None:
        self.run = RunDirectory(folder / "run")
