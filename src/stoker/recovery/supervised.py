"""Supervised training: from a recipe to a finished run, through failures, without a person.

    command (this process)      prepares, plans, shows, records failures; starts the supervisor again if it dies
      supervisor                forks the ranks, watches them, restarts them
        rank 0 … rank N−1       train

The supervisor has imported everything and computed nothing, so that it can fork ranks in an instant. Where the
command has not computed anything yet, it forks the supervisor from itself (`standby`), and otherwise has it
forked from a server that imports everything anew, which takes seconds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection, get_context, reduction
from multiprocessing.context import ForkProcess, ForkServerProcess
from typing import Any

from stoker.checkpoint import checkpoints_of, latest
from stoker.child_processes import die_with_parent, fork_server
from stoker.data.prepare import prepare
from stoker.errors import OutOfMemory, StokerError, Terminated
from stoker.progress import Progress
from stoker.recipe.loading import LoadedRecipe
from stoker.record import SUPERVISOR, RecordWriter
from stoker.recovery.faults import Fault, require_possible
from stoker.recovery.host_memory import copies_of
from stoker.recovery.processes import Message, as_failure
from stoker.recovery.supervisor import Supervisor
from stoker.run_directory import RunDirectory
from stoker.training.launching import (
    TrainingOutcome,
    helping,
    open_run,
    outcome_of,
    require_trainable,
    shown,
    step_of,
    stopping,
    train_as_one_rank,
)
from stoker.training.rank import Job
from stoker.training.signals import StopRequest, held_back, let_through, listening

_DEATHS = 3
"""How often the supervisor may die without a step between before the command gives up."""


class Standby:
    """A supervisor that waits for its orders, and perhaps another one in case it dies."""

    def __init__(
        self,
        process: ForkProcess | ForkServerProcess,
        channel: connection.Connection,
        spare: Standby | None = None,
    ) -> None:
        self.process = process
        self.channel = channel
        self.spare = spare

    def order(self, job: Job, faults: tuple[Fault, ...], lock: int) -> None:
        """Give it the job, and the lock on the run's folder, which stays held while it or any rank lives."""
        assert self.process.pid is not None
        self.channel.send((job, faults))
        reduction.send_handle(self.channel, lock, self.process.pid)

    def end(self) -> None:
        """Kill it if it is alive, and the spare one; its ranks end with it."""
        if self.spare is not None:
            self.spare.end()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.channel.close()


@contextmanager
def standby(*, forked: bool) -> Iterator[Standby]:
    """A supervisor for `train`, ended when the block ends.

    `forked`: from this very process, which then must have imported everything and computed nothing.
    """
    found = _start_forked(_start_forked()) if forked else _start_from_server()
    try:
        yield found
    finally:
        found.end()


def _start_forked(spare: Standby | None = None) -> Standby:
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=True)
    copied = [ours] if spare is None else [ours, spare.channel]
    process = context.Process(target=_supervisor_main, args=(theirs, copied), name="supervisor")
    with held_back():
        process.start()
    theirs.close()
    return Standby(process, ours, spare)


def _start_from_server() -> Standby:
    context = fork_server("stoker.recovery.supervised")
    ours, theirs = context.Pipe(duplex=True)
    process = context.Process(target=_supervisor_main, args=(theirs, ()), name="supervisor")
    try:
        process.start()
    except (EOFError, ConnectionError) as error:
        raise StokerError(
            "the process that starts the supervisor died; often that is the system running out of memory. Nothing "
            "saved is lost: the same command goes on from the newest checkpoint."
        ) from error
    theirs.close()
    return Standby(process, ours)


def train(
    loaded: LoadedRecipe,
    run: RunDirectory,
    progress: Progress,
    ready: Standby | None = None,
    faults: tuple[Fault, ...] = (),
) -> TrainingOutcome:
    """Train what `loaded` says in the folder `run`, from its newest checkpoint if it has one, through failures.

    Prepares the corpus first where that is still to do. Under a launcher that sets `WORLD_SIZE` (torchrun, for
    instance) this process is one of the ranks, and the launcher supervises; otherwise the ranks are started here,
    by the supervisor `ready` if there is one.
    """
    if "WORLD_SIZE" in os.environ:
        return train_as_one_rank(loaded, run, progress)
    for fault in faults:
        require_possible(fault, loaded.recipe)
    require_trainable(loaded, run)
    corpus = prepare(loaded, progress)
    with run.held("train") as lock:
        job = open_run(loaded, run, corpus, progress)
        checkpoint = latest(checkpoints_of(run, loaded.recipe.checkpoint))
        if checkpoint is not None and step_of(checkpoint) >= loaded.recipe.training.steps:
            return TrainingOutcome(run, step_of(checkpoint), checkpoint, trained_now=False)
        first = step_of(checkpoint) if checkpoint else 0
        with (
            stopping(run),
            helping(loaded, run, corpus),
            shown(progress, job, first) as report,
            listening() as stop,
            _recording(run) as record,
            copies_of(run, "node-0", loaded.recipe.recovery.copy_every > 0) as copies,
        ):
            job = replace(job, snapshots=copies)
            _Command(job, faults, lock, stop, report, progress, record).run(ready)
        return outcome_of(run)


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
    ) -> None:
        self._job = job
        self._faults = faults
        self._lock = lock
        self._stop = stop
        self._report = report
        self._progress = progress
        self._record = record
        self._deaths = 0
        self._forwarded = False

    def run(self, ready: Standby | None) -> None:
        """Return when the last step is done; raise what ended the run otherwise."""
        while True:
            supervisor, own = (ready, False) if ready is not None else (_start_from_server(), True)
            try:
                if self._until_it_ends(supervisor):
                    return
            finally:
                if own:  # what the caller has given the caller ends
                    supervisor.end()
            ready = supervisor.spare
            self._judge_death(supervisor)
            self._job = replace(self._job, attempt=self._job.attempt + 1)

    def _until_it_ends(self, supervisor: Standby) -> bool:
        """Whether the run is finished; False when the supervisor died."""
        try:
            supervisor.order(self._job, self._faults, self._lock)
        except (BrokenPipeError, ConnectionError):
            return False
        while True:
            if self._stop.asked and not self._forwarded and supervisor.process.pid is not None:
                self._forwarded = True
                os.kill(supervisor.process.pid, signal.SIGTERM)
            if not connection.wait([supervisor.channel, supervisor.process.sentinel], timeout=0.2):
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
                error = message["error"](message["message"])
                error.exit_code = message["exit_code"]
                if isinstance(error, OutOfMemory):
                    error.held_bytes = message["held_bytes"]
                raise error
            case "event":
                self._job = replace(self._job, attempt=max(self._job.attempt, message["row"]["attempt"] + 1))
                self._record.append("event", message["row"])
                self._record.flush()
            case "fault":
                self._faults = tuple(fault for fault in self._faults if str(fault) != message["fault"])
                self._record.append("event", self._event("fault", message["time"], fault=message["fault"]))
                self._record.flush()
                self._progress.say(f"fault: {message['fault']}")
            case "say":
                self._progress.say(message["line"])
            case _:
                if message["kind"] == "step":
                    self._deaths = 0
                self._report(message)

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


def _supervisor_main(channel: connection.Connection, copied: Sequence[connection.Connection]) -> None:
    for commands_end in copied:  # by the fork: nobody but the command may hold them
        commands_end.close()
    die_with_parent(by_thread=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's to judge, which passes it on as SIGTERM
    try:
        job, faults = channel.recv()
        reduction.recv_handle(channel)  # of the lock: it stays open here and in every rank
    except (EOFError, ConnectionError):
        os._exit(0)
    try:
        with listening() as stop:
            let_through(signal.SIGTERM)
            Supervisor(job, faults, stop, channel.send).run()
        channel.send({"kind": "finished"})
    except BrokenPipeError:
        os._exit(1)
    except BaseException as error:
        channel.send(as_failure(error, 0, RunDirectory(job.run)))
    os._exit(0)
