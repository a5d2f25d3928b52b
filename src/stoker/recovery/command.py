"""The command's part in training: it holds the run's folder, and keeps a supervisor at work to the end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from stoker.checkpoint import checkpoints_of, latest
from stoker.data.prepare import prepare
from stoker.errors import StokerError, Terminated
from stoker.monitoring import LAST_LOOK_SECONDS, Beside, require_watchable
from stoker.progress import Progress
from stoker.recipe.loading import LoadedRecipe
from stoker.record import SUPERVISOR, Record, RecordWriter
from stoker.recovery.faults import Fault
from stoker.recovery.leading import Lead
from stoker.recovery.looking import states_of
from stoker.recovery.nodes import read_notice
from stoker.recovery.processes import Message, as_error
from stoker.recovery.standby import Standby, Supervisors
from stoker.recovery.tenure import Replaced
from stoker.run_directory import RunDirectory
from stoker.training.launching import TrainingOutcome, helping, open_run, outcome_of, shown, step_of, stopping
from stoker.training.rank import Job
from stoker.training.signals import StopRequest, listening

_DURING_ATTEMPTS = ("node_joined", "node_lost", "shrunk", "grown", "network_slow")
"""Events that end no attempt; all others of a supervisor do."""
_STOPPED_SECONDS = 5.0
"""How long a supervisor may be stopped (SIGSTOP): nobody watches over the ranks meanwhile."""
_DEATHS = 3
"""How often the supervisor may die without a step between before the command gives up."""


def train_holding(
    loaded: LoadedRecipe,
    run: RunDirectory,
    progress: Progress,
    supervisors: Supervisors,
    faults: tuple[Fault, ...],
    lock: int,
    copies: Path | None,
    lead: Lead | None = None,
) -> TrainingOutcome:
    """Train in the folder `run`, which the caller holds by `lock`; prepares the corpus where that is still to do.

    `copies` is where this node keeps copies of the state; `lead` makes it the one of several nodes that leads.
    """
    require_watchable(loaded.recipe)
    corpus = prepare(loaded, progress)
    job = replace(open_run(loaded, run, corpus, progress), snapshots=copies)
    checkpoint = latest(checkpoints_of(run, loaded.recipe.checkpoint))
    done = checkpoint is not None and step_of(checkpoint) >= loaded.recipe.training.steps
    # One that this run did not write may be another model's: the ranks compare before they take it.
    if checkpoint is not None and done and step_of(checkpoint) in Record(run.record).steps(["step"])["step"]:
        return TrainingOutcome(run, step_of(checkpoint), checkpoint, trained_now=False)
    first = step_of(checkpoint) if checkpoint else 0
    with (
        listening() as stop,
        stopping(run, stop),
        helping(loaded, run, corpus),
        shown(progress, job, first) as report,
        _recording(run) as record,
    ):
        _Command(job, faults, lock, stop, report, progress, record, lead, first).run(supervisors)
    return outcome_of(run)


def passed_on(stop: StopRequest) -> signal.Signals:
    """As which signal a request to stop reaches the supervisor, which tells the other nodes."""
    return signal.SIGUSR1 if stop.by == signal.SIGUSR1 else signal.SIGTERM


class _Command:
    """Keeps a supervisor at work until the run has ended."""

    def __init__(
        self,
        job: Job,
        faults: tuple[Fault, ...],
        lock: int,
        stop: StopRequest,
        report: Callable[[Message], None],
        progress: Progress,
        record: RecordWriter,
        lead: Lead | None,
        saved: int = 0,
    ) -> None:
        """`saved` is the step of the newest checkpoint, 0 when there is none."""
        self._saved: int | None = saved
        self._job = job
        self._faults = faults
        self._lock = lock
        self._stop = stop
        self._report = report
        self._progress = progress
        self._record = record
        self._lead = lead
        self._monitor = Beside(RunDirectory(job.run), job.recipe, progress.say, self._monitor_died)
        self._deaths = 0
        self._forwarded = False

    def run(self, supervisors: Supervisors) -> None:
        """Return when the last step is done; raise what ended the run otherwise."""
        try:
            while not self._until_it_ends(supervisors.current()):
                died = supervisors.current()
                supervisors.replace()
                self._judge_death(died)
                self._job = replace(self._job, attempt=self._job.attempt + 1)
        finally:
            self._monitor.end(LAST_LOOK_SECONDS)

    def _until_it_ends(self, supervisor: Standby) -> bool:
        """Whether the run is finished; False when the supervisor died, or was stopped and has been ended."""
        stopped_since: float | None = None
        try:
            supervisor.lead(self._job, self._faults, self._lock, self._lead)
        except (BrokenPipeError, ConnectionError):
            return False
        while True:
            self._monitor.look_after()
            if self._stop.asked and not self._forwarded and supervisor.process.pid is not None:
                self._forwarded = True
                os.kill(supervisor.process.pid, passed_on(self._stop))
            if not connection.wait([supervisor.channel, supervisor.process.sentinel], timeout=0.2):
                now = time.monotonic()
                stopped_since = (stopped_since or now) if states_of([supervisor.process.pid]) == ["T"] else None
                if stopped_since is not None and now - stopped_since > _STOPPED_SECONDS:
                    supervisor.process.kill()
                continue
            try:
                message = supervisor.channel.recv() if supervisor.channel.poll() else None
            except (EOFError, ConnectionError):
                message = None
            if message is None:
                supervisor.process.join()
                return False
            if message["kind"] == "finished":
                return True
            self._hear(message)

    def _hear(self, message: Message) -> None:
        match message["kind"]:
            case "failure":
                self._stop.by = self._stop.by or message["stopped_by"]  # another node may have been asked
                raise as_error(message)
            case "replaced":
                raise Replaced(message["node"])
            case "event":
                self._learn(message["row"])
                self._record.append("event", message["row"])
                self._record.flush()
            case "fault":
                self._faults = tuple(fault for fault in self._faults if str(fault) != message["fault"])
                self._record.append("event", self._event("fault", message["time"], fault=message["fault"]))
                self._record.flush()
                self._progress.say(f"fault: {message['fault']}")
            case "say":
                self._progress.say(message["line"])
            case "goes_on":
                self._progress.say(f"going on after step {message['step']:,}{self._whence(message['step'])}")
            case _:
                if message["kind"] == "step":
                    self._deaths = 0
                    self._saved = None
                self._report(message)

    def _whence(self, step: int) -> str:
        """Where the state comes from that an earlier command left; of one that this command made it is not said."""
        saved, self._saved = self._saved, None
        if saved is None:
            return ""
        return " from copies in memory" if step > saved else f" from the checkpoint of step {step:,}"

    def _learn(self, row: dict[str, Any]) -> None:
        """What the next supervisor has to know."""
        over = row["event"] not in _DURING_ATTEMPTS
        self._job = replace(self._job, attempt=max(self._job.attempt, row["attempt"] + over))
        notice = read_notice(RunDirectory(self._job.run)) if self._lead is not None else None
        if self._lead is not None and notice is not None:
            self._lead = replace(self._lead, begun=notice.begun, lost="")

    def _judge_death(self, supervisor: Standby) -> None:
        """The supervisor died, and its ranks with it."""
        if self._stop.asked:
            raise Terminated("asked to stop while the supervisor was being replaced")
        self._deaths += 1
        code = supervisor.process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._record.append("event", self._event("supervisor_died", time.time(), message=how))
        self._record.flush()
        if self._deaths >= _DEATHS:
            raise StokerError(
                f"the supervisor {how}, {self._deaths} times without a step between. Nothing saved is lost: the "
                "same command goes on from the newest checkpoint."
            )
        self._progress.say(f"the supervisor {how}, and its ranks with it; starting another")

    def _monitor_died(self, how: str) -> None:
        self._record.append("event", self._event("monitor_died", time.time(), message=how))

    def _event(self, event: str, when: float, **detail: Any) -> dict[str, Any]:
        return {"step": None, "event": event, "attempt": self._job.attempt, "time": when, "detail": detail}


@contextmanager
def _recording(run: RunDirectory) -> Iterator[RecordWriter]:
    """The supervisor's own part of the record. Written here: the supervisor itself may have no threads."""
    writer = RecordWriter(run.record, SUPERVISOR)
    try:
        yield writer
    finally:
        writer.close()
