"""The essentials of a run in a terminal: over ssh, in 80 columns and 24 lines."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker.dashboard.finding_runs import runs_at
from stoker.dashboard.serving import require_packages
from stoker.dashboard.snapshot import (
    Snapshot,
    finding_lines,
    phase_bars,
    plot,
    shortened,
    snapshot_of,
)
from stoker.dashboard.watched import WatchedRun
from stoker.diagnosis import diagnose
from stoker.diagnosis.finding import Finding
from stoker.errors import BadInput, StokerError

_EVERY_SECONDS = 2.0
_NARROWEST = 40
_DIAGNOSE_EVERY_SECONDS = 60.0


def watch_in_terminal(paths: Sequence[Path], *, as_json: bool) -> Any:
    """Show the run until `q` is pressed; without a terminal, what is to be printed once.

    Raises `BadInput` when `paths` name no run, or several: a terminal has room for one.
    """
    runs = runs_at(paths)
    if len(runs) > 1:
        names = ", ".join(str(run.path) for run in runs[:6])
        more = f", and {len(runs) - 6} more" if len(runs) > 6 else ""
        raise BadInput(f"--terminal shows one run; name one of {names}{more}")
    run = WatchedRun(runs[0])
    # A terminal that can only print, such as that of an editor or of a serial line, has no screen to draw on.
    able = sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    if as_json or not able:
        snapshot, findings = snapshot_of(run), findings_of(run)
        if as_json:
            return {**snapshot.json, "findings": [finding.model_dump(mode="json") for finding in findings]}
        return snapshot.as_text(findings, max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns))
    require_packages(["textual"])
    from stoker.dashboard.terminal_screen import screen_for

    screen_for(run).run()
    return None


def findings_of(run: WatchedRun) -> tuple[Finding, ...]:
    """What stands out; nothing where the record cannot be diagnosed."""
    try:
        return diagnose(run.directory).findings
    except (StokerError, OSError):
        return ()


class Watcher:
    """Reads the run in a thread, so that keys are answered at once."""

    def __init__(self, run: WatchedRun) -> None:
        self.run = run
        self.snapshot: Snapshot | None = None
        self.findings: tuple[Finding, ...] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Read no more."""
        self._ended.set()

    def _work(self) -> None:
        asked, version = -_DIAGNOSE_EVERY_SECONDS, ""
        while not self._ended.is_set():
            # A folder may be gone for a moment: what was read stays on the screen.
            with suppress(StokerError, OSError):
                self.snapshot = snapshot_of(self.run)
            if self.run.version != version and time.monotonic() - asked >= _DIAGNOSE_EVERY_SECONDS:
                asked, version = time.monotonic(), self.run.version
                self.findings = findings_of(self.run)
            self._ended.wait(_EVERY_SECONDS)


def screen_text(snapshot: Snapshot, findings: Sequence[Finding] | None, width: int, height: int) -> str:
    """What fits: the curve gets the lines that the rest leaves, at least four."""
    above = [snapshot.heading, snapshot.figures, ""]
    told = ["being diagnosed…"] if findings is None else finding_lines(findings) or ["nothing stands out"]
    below = ["", *phase_bars(snapshot.phases, width), snapshot.memory, "", *told[:4], *snapshot.events[-4:]]
    room = max(4, height - len(above) - len(below) - 1)
    lines = [*above, *plot(snapshot.loss, width - 10, room, snapshot.steps), *below]
    return "\n".join(shortened(line, width) for line in lines[:height])
