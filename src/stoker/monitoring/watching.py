"""Runs a monitor to its end: beside the command that trains, or by hand."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stoker.errors import BadInput, StokerError
from stoker.monitoring.lock import held
from stoker.monitoring.monitor import Monitor, Outlook
from stoker.process_settings import call_process
from stoker.run_directory import RunDirectory

_NICENESS = 10
_LAST_SECONDS = 10.0
"""How long what waits for delivery may take when a run is over."""
_EXPORT_SECONDS = 3600.0
"""How long the export of a run that is over may take."""
_LOOK_SECONDS = 5.0
Say = Callable[[str], None]


def watch_beside(run: RunDirectory) -> None:
    """Watch until stdin ends: the command that holds its other end is over then, however that came."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    with held(run) as writes:
        monitor = Monitor(run, _print, live=True, writes=writes)
        while not _stdin_ended(monitor.look()):
            pass
        monitor.look(diagnose=True)
        monitor.close(_LAST_SECONDS)


def watch(run: RunDirectory, say: Say, *, once: bool = False, follow: bool = False) -> Outlook:
    """Watch by hand, until the run is over. One that is over already is looked at once and exported, and nobody is
    told; with `once` it is only looked at.

    `follow` takes it for under way although its lock is not seen from here. Raises `BadInput` when another monitor
    watches it.
    """
    run.require_run()
    if once:
        return _one_look(Monitor(run, say, live=False, writes=False, exports=False), over=not run.is_held)
    live = follow or run.is_held
    with held(run) as writes:
        if not writes:
            say(f"{run.path} cannot be written: what is found is told, and not recorded")
        monitor = Monitor(run, say, live=live, writes=writes)
        try:
            if not live:
                return _one_look(monitor, over=True)
            _until_over(run, monitor, follow)
            return monitor.outlook()
        finally:
            monitor.close(_LAST_SECONDS if live else _EXPORT_SECONDS)


def _one_look(monitor: Monitor, over: bool) -> Outlook:
    monitor.look(monitor.latest_time() if over else None, diagnose=True)
    return monitor.outlook()


def _until_over(run: RunDirectory, monitor: Monitor, follow: bool) -> None:
    while follow or run.is_held:
        pause = monitor.look()
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
    monitor.look(diagnose=True)


def _stdin_ended(seconds: float) -> bool:
    """Wait so long, or until stdin ends."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)


def _print(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    """The process beside the command; its argument is the run's folder."""
    call_process("monitor")
    try:
        watch_beside(RunDirectory(Path(sys.argv[1])))
    except BadInput as error:
        _print(f"no monitor: {error}")
        return error.exit_code
    except StokerError as error:
        _print(f"the monitor failed: {error}")
        return error.exit_code
    return 0
