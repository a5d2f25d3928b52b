"""Watches over the ranks of a run: starts them, sees them fail, finds out which and why, and starts them again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from stoker.errors import StokerError, Terminated
from stoker.plural import counted
from stoker.recovery.attempt import Attempt, Tell
from stoker.recovery.crew import Crew, LocalCrew
from stoker.recovery.endurance import Endurance
from stoker.recovery.failure import Failure
from stoker.recovery.faults import Fault
from stoker.recovery.leading import Lead, Leading
from stoker.recovery.processes import Message, as_failure
from stoker.recovery.silence import Silence
from stoker.recovery.tenure import Replaced
from stoker.run_directory import RunDirectory
from stoker.training.rank import Job
from stoker.training.signals import StopRequest

_HERE = "127.0.0.1"


class Nodes(Protocol):
    """Where ranks can be."""

    def gather(self, job: Job) -> tuple[Job, list[tuple[Crew, Sequence[int]]]]:
        """The job as it can be done now, and who does which ranks."""

    def wants_others(self) -> bool:
        """Whether the ranks should save and end, to be started otherwise."""

    def note(self, failure: Failure, attempt: Attempt) -> None:
        """How an attempt ended."""

    def before_silence(self) -> None:
        """To be called when nothing else will be for seconds."""

    def look_after(self) -> None:
        """To be called all the time while there is nothing else to do."""


class _OneNode:
    """This node alone."""

    def __init__(self) -> None:
        self._crew = LocalCrew("this node", _HERE)

    def gather(self, job: Job) -> tuple[Job, list[tuple[Crew, Sequence[int]]]]:
        return job, [(self._crew, range(job.recipe.layout.world_size))]

    def wants_others(self) -> bool:
        return False

    def note(self, failure: Failure, attempt: Attempt) -> None:
        pass

    def before_silence(self) -> None:
        pass

    def look_after(self) -> None:
        pass


class Supervisor:
    """Runs a job to its last step, through failures. One process; it starts no thread, so that it can fork."""

    def __init__(
        self,
        job: Job,
        faults: tuple[Fault, ...],
        stop: StopRequest,
        tell: Tell,
        lead: Lead | None = None,
        lock: int = -1,
    ) -> None:
        """`lead` is what it takes to lead other nodes, with the `lock` on the run's folder; None for a run on this
        node alone."""
        self._job = job
        self._lock = lock
        self._lead = lead
        self._faults = faults
        self._stop = stop
        self._tell = tell
        self._silence = Silence(job.recipe.recovery)
        self._endurance = Endurance(job.recipe.recovery)
        self._failed: tuple[float, int] | None = None
        """When the last failure was noticed, and after which step, until the ranks go on."""
        self._trained = False
        """Whether any attempt has completed a step."""

    def run(self) -> None:
        """Return when the last step is done; raise what ended the run otherwise."""
        if self._lead is None:
            self._run(_OneNode())
            return
        nodes = Leading(self._job, self._lead, self._lock, self._stop, self._tell)
        try:
            self._run(nodes)
        except Replaced:
            nodes.leave()
            raise
        except BaseException as error:
            nodes.close({**as_failure(error, 0, RunDirectory(self._job.run)), "stopped_by": self._stop.by})
            raise
        nodes.close({"kind": "finished"})

    def _run(self, nodes: Nodes) -> None:
        while True:
            self._job, crews = nodes.gather(self._job)
            attempt = Attempt(self._job, crews, self._faults, self._silence, self._stop, self._tell)
            attempt.when_begun = self._say_that_it_goes_on
            failure = attempt.run(nodes.wants_others, nodes.before_silence)
            self._tell(_ended(attempt))
            if failure is None:
                return
            self._trained |= attempt.last_step > attempt.first_step
            self._faults = tuple(fault for fault in self._faults if str(fault) not in attempt.faults_done)
            nodes.note(failure, attempt)
            if attempt.interrupted and failure.kind == "terminated" and not self._stop.asked:
                self._tell(
                    {"kind": "say", "line": f"saved after step {attempt.last_step:,}, to go on with more nodes"}
                )
            else:
                self._wait(self._judge(failure, attempt), nodes)
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
        self._failed = (failure.noticed, attempt.last_step)
        ranks = ", ".join(map(str, failure.ranks)) or "unknown"
        self._tell({"kind": "say", "line": f"failure after step {attempt.last_step:,}: {failure.message}"})
        again = f"in {verdict.delay_seconds:g} s" if verdict.delay_seconds else "at once"
        self._tell({"kind": "say", "line": f"restarting the ranks {again} (at fault: rank {ranks})"})
        return verdict.delay_seconds

    def _say_that_it_goes_on(self, step: int) -> None:
        if self._failed is None:
            if step:  # of an earlier command, supervisor or set of nodes: what it came from the command knows
                self._tell({"kind": "goes_on", "step": step})
            return
        noticed, done = self._failed
        self._failed = None
        again = counted(done - step, "steps") if done > step else "no step"
        line = f"going on after step {step:,}, {time.time() - noticed:.1f} s after the failure; {again} lost"
        self._tell({"kind": "say", "line": line})

    def _wait(self, seconds: float, nodes: Nodes) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stop.asked:
            time.sleep(min(0.1, left))
            nodes.look_after()
        if self._stop.asked:
            raise Terminated("asked to stop while waiting to restart the ranks")


def _given_up(error: StokerError, why: str) -> StokerError:
    error.args = (f"{error} The run gave up: {why}.",)
    return error


def _ended(attempt: Attempt) -> Message:
    row = {"step": attempt.last_step, "event": "ranks_ended", "attempt": attempt.job.attempt, "time": time.time()}
    return {
        "kind": "event",
        "row": {**row, "detail": {"forwards": attempt.forwards, "sequences": _sequences(attempt)}},
    }


def _sequences(attempt: Attempt) -> int | None:
    """How many sequences these forward passes were of, on all ranks together; None when some were of fewer."""
    recipe, last = attempt.job.recipe, attempt.furthest_step or attempt.last_step
    under_way = min(last + 1, recipe.training.steps)
    each = recipe.micro_batch_size_at(min(attempt.first_step + 1, under_way))
    return attempt.forwards * each if each == recipe.micro_batch_size_at(under_way) else None


def _event(event: str, attempt: Attempt, failure: Failure, **detail: Any) -> Message:
    row = {"step": attempt.last_step, "event": event, "attempt": attempt.job.attempt, "time": failure.noticed}
    return {"kind": "event", "row": {**row, "detail": {**failure.as_detail(), **detail}}}
