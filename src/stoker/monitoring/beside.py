"""The monitor's process, seen from the command that trains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from stoker.recipe import Recipe
from stoker.run_directory import RunDirectory

_WITHOUT_HURRY_SECONDS = 30.0
"""A run that asks for nothing but the log is watched only from then on: one that is over before needs nobody."""
LAST_LOOK_SECONDS = 15.0
"""How long the monitor has, once the run is over, for its last look and what it still has to deliver."""
_AGAIN_SECONDS = 10.0
_DEATHS = 5
_READ = 65536


class Beside:
    """Starts the monitor, again when it dies, and passes on what it says. Nothing here waits or raises."""

    def __init__(
        self, run: RunDirectory, recipe: Recipe, say: Callable[[str], None], died: Callable[[str], None]
    ) -> None:
        """`died` records how it died."""
        self._run = run
        self._say = say
        self._died = died
        alerts, exporters = recipe.alerts, recipe.exporters
        asked = recipe.recovery.on_finding != "wait"
        self._wanted = alerts.enabled or exporters.any_enabled
        hurry = alerts.tells_somebody or bool(alerts.own) or exporters.any_enabled or asked
        self._due = time.monotonic() + (0.0 if hurry else _WITHOUT_HURRY_SECONDS)
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths = 0
        self._line = b""

    def look_after(self) -> None:
        """To be called often."""
        if self._process is None:
            if self._wanted and time.monotonic() >= self._due:
                self._start()
            return
        self._listen()
        if self._process.poll() is not None:
            self._note_death(self._process.returncode)

    def end(self, seconds: float) -> None:
        """The run is over: let the monitor take its last look and deliver what waits, for so many seconds."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        deadline = time.monotonic() + seconds
        with suppress(OSError):  # it has died
            self._process.stdin.close()
        while self._process.poll() is None and time.monotonic() < deadline:
            self._listen()
            time.sleep(0.02)
        if self._process.poll() is None:
            self._process.kill()
            self._say("the monitor was ended before it had delivered everything")
        self._process.wait()
        self._listen()
        self._close()
        self._process, self._wanted = None, False

    def _start(self) -> None:
        try:
            # Its own session: what a terminal or a scheduler sends to the group is for the command to judge.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stoker.monitoring", str(self._run.path.absolute())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")},
            )
        except OSError as error:
            self._wanted = False
            self._say(f"no monitor: it cannot be started ({error.strerror})")
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            said = os.read(self._process.stdout.fileno(), _READ)
        except (BlockingIOError, OSError):
            return
        *lines, self._line = (self._line + said).split(b"\n")
        for line in lines:
            if line.strip():
                self._say(line.decode(errors="replace").rstrip())

    def _note_death(self, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._close()
        self._process = None
        self._deaths += 1
        self._wanted = self._deaths < _DEATHS
        self._due = time.monotonic() + _AGAIN_SECONDS * (self._deaths - 1)
        again = "it is started again" if self._wanted else f"{self._deaths} times now, so it is left at that"
        self._say(f"the monitor {how}; training does not depend on it; {again}")
        self._died(how)

    def _close(self) -> None:
        assert self._process is not None
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
