"""Watches over the ranks of a run: starts them, sees them fail, finds out which and why, and starts them again."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from stoker.errors import StokerError, Terminated
from stoker.recovery.attempt import Attempt, Tell
from stoker.recovery.crew import LocalCrew
from stoker.recovery.endurance import Endurance
from stoker.recovery.failure import Failure
from stoker.recovery.faults import Fault
from stoker.recovery.processes import Message
from stoker.recovery.silence import Silence
from stoker.training.rank import Job
from stoker.training.signals import StopRequest

_HERE = "127.0.0.1"


class Supervisor:
    """Runs a job to its last step, through failures. One process; it starts no thread, so that it can fork."""

    def __init__(self, job: Job, faults: tuple[Fault, ...], stop: StopRequest, tell: Tell) -> None:
        self._job = job
        self._faults = faults
        self._stop = stop
        self._tell = tell
        self._silence = Silence(job.recipe.recovery)
        self._endurance = Endurance(job.recipe.recovery)
        self._trained = False
        """Whether any attempt has completed a step."""

    def run(self) -> None:
        """Return when the last step is done; raise what ended the run otherwise."""
        crew = LocalCrew("this node", _HERE)
        while True:
            crews = [(crew, range(self._job.recipe.layout.world_size))]
            attempt = Attempt(self._job, crews, self._faults, self._silence, self._stop, self._tell)
            failure = attempt.run()
            if failure is None:
                return
            self._trained |= attempt.last_step > attempt.first_step
            self._faults = tuple(fault for fault in self._faults if str(fault) not in attempt.faults_done)
            self._wait(self._judge(failure, attempt))
            self._job = replace(self._job, attempt=self._job.attempt + 1)

    def _judge(self, failure: Failure, attempt: Attempt) -> float:
        """Seconds to wait before the next attempt. Raises when there shall be none."""
        # What no attempt ever got past, and a rank says of itself, is a mistake and not an accident.
        if failure.is_final or (failure.said_by_rank and not self._trained):
            self._tell(_event("failure", attempt, failure, retried=False))
            raise failure.error
        verdict = self._endurance.judge(failure.kind, failure.message, attempt.last_step, attempt.first_step)
        if verdict.gives_up is not None:
            self._tell(_event("gave_up", attempt, failure, reason=verdict.gives_up))
            raise _given_up(failure.error, verdict.gives_up)
        self._tell(_event("failure", attempt, failure, retried=True))
        ranks = ", ".join(map(str, failure.ranks)) or "unknown"
        self._tell({"kind": "say", "line": f"failure after step {attempt.last_step:,}: {failure.message}"})
        again = f"in {verdict.delay_seconds:g} s" if verdict.delay_seconds else "at once"
        self._tell({"kind": "say", "line": f"restarting the ranks {again} (at fault: rank {ranks})"})
        return verdict.delay_seconds

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stop.asked:
            time.sleep(min(0.1, left))
        if self._stop.asked:
            raise Terminated("asked to stop while waiting to restart the ranks")


def _given_up(error: StokerError, why: str) -> StokerError:
    error.args = (f"{error} The run gave up: {why}.",)
    return error


def _event(event: str, attempt: Attempt, failure: Failure, **detail: Any) -> Message:
    row = {"step": attempt.last_step, "event": event, "attempt": attempt.job.attempt, "time": time.time()}
    return {"kind": "event", "row": {**row, "detail": {**failure.as_detail(), **detail}}}
