"""The command on one of several nodes: it leads when no other does, follows otherwise, and leads when that is lost.

node a: command ── supervisor ── ranks 0 …     holds the run's folder, so it leads
                     │
node b: command ── supervisor ── ranks …       does what the leader says
node c: command ── supervisor                  a spare
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import connection
from pathlib import Path

from stoker.checkpoint import checkpoints_of
from stoker.errors import BadInput, StokerError, Terminated
from stoker.progress import Progress
from stoker.recipe.loading import LoadedRecipe
from stoker.record import SUPERVISOR, Record
from stoker.recovery.command import passed_on, train_holding
from stoker.recovery.faults import Fault
from stoker.recovery.following import Following
from stoker.recovery.host_memory import copies_of, identity_of
from stoker.recovery.leading import Lead
from stoker.recovery.nodes import Notice, Place, ranks_on, read_notice, write_notice
from stoker.recovery.processes import Message, as_error
from stoker.recovery.standby import Standby, Supervisors
from stoker.recovery.tenure import Replaced, Sign, is_in_place, sign_of, taken_over
from stoker.run_directory import RunDirectory
from stoker.training.launching import TrainingOutcome, outcome_of, stopping
from stoker.training.signals import StopRequest, listening

_PATIENCE_SECONDS = 120.0
"""How long a node without a leader waits for one. An NFS server gives up the lock of a client that is gone only
after a lease of, by default, 90 seconds."""
_OTHER_JOB_SECONDS = 10.0
"""How long the folder may be held by another job: a leader needs an instant to say which job it is of."""
_AGAIN_SECONDS = 0.2
_FROZEN_SECONDS = 30.0
"""How long a leader may show nothing on the disk, where it shows itself every second, before it is replaced."""
_DEATHS = 3


class InUse(BadInput):
    """Another command holds the run's folder."""


class OneOfSeveral:
    """A command on one node, to the end of the run."""

    def __init__(
        self,
        loaded: LoadedRecipe,
        run: RunDirectory,
        progress: Progress,
        supervisors: Supervisors,
        faults: tuple[Fault, ...],
        place: Place,
    ) -> None:
        self._loaded = loaded
        self._run = run
        self._progress = progress
        self._supervisors = supervisors
        self._faults = faults
        self._place = place
        self._ranks = ranks_on(place, loaded.recipe)
        self._kept = ExitStack()
        self._copies: tuple[Path | None] | None = None
        self._deaths = 0
        self._was_led = False
        """Whether the leader that was followed last had let this node in."""
        self._sign: Sign = (0, 0)
        self._sign_since = time.monotonic()

    def train(self) -> TrainingOutcome:
        """Train, leading or following; raises what ended the run otherwise."""
        with self._kept:
            lost_since = time.monotonic()
            while True:
                try:
                    with self._held() as lock:
                        return self._lead(lock)
                except InUse as in_use:
                    held = in_use
                except Replaced as by:
                    self._progress.say(f"node {by.node} leads now: this one was stopped, or cut off from the disk")
                    self._supervisors.replace()
                    lost_since = time.monotonic()
                notice, silent = read_notice(self._run), time.monotonic() - lost_since
                if notice is None or notice.job != self._place.job:
                    if silent > _OTHER_JOB_SECONDS:
                        raise held
                elif notice.address is None:
                    lost_since = time.monotonic()  # the leader holds the folder and prepares
                elif self._follow(notice):
                    return outcome_of(self._run)
                elif self._was_led:
                    lost_since = time.monotonic()
                elif silent > _PATIENCE_SECONDS:
                    raise StokerError(
                        f"node {notice.node} holds {self._run.path} for job {notice.job}, but has not answered at "
                        f"{notice.host}:{notice.port} for {silent:.0f} s. Can this node reach it? STOKER_ADDRESS "
                        "on that node says where it listens."
                    )
                time.sleep(_AGAIN_SECONDS)

    @contextmanager
    def _held(self) -> Iterator[int]:
        """Hold the run's folder, if need be in place of a leader that gives no sign of life; yields the lock's
        descriptor. Raises `InUse` when another command holds it."""
        with ExitStack() as holding:
            try:
                lock = holding.enter_context(self._run.held("train"))
            except BadInput as in_use:
                lock, held = -1, in_use
            if lock >= 0 and not is_in_place(self._run, lock):
                raise InUse("another node is taking over")
            if lock < 0:
                lock = self._taken_over(holding, held)
            yield lock

    def _taken_over(self, holding: ExitStack, held: BadInput) -> int:
        """The lock of a leader of this job that gives no sign of life, neither to this node nor on the disk."""
        sign, notice = sign_of(self._run), read_notice(self._run)
        if sign != self._sign:
            self._sign, self._sign_since = sign, time.monotonic()
        theirs = notice is not None and notice.job == self._place.job and notice.address is not None
        if not theirs or time.monotonic() - self._sign_since < _FROZEN_SECONDS:
            raise InUse(str(held)) from held
        try:
            lock = holding.enter_context(taken_over(self._run, sign))
        except BadInput as after_all:
            raise InUse(str(after_all)) from after_all
        assert notice is not None
        self._progress.say(
            f"node {notice.node}, which led, has given no sign of life for {_FROZEN_SECONDS:g} s: taking over"
        )
        return lock

    def _lead(self, lock: int) -> TrainingOutcome:
        before, place = read_notice(self._run), self._place
        begun = before is not None and before.job == place.job and before.begun
        lost = before.node if begun and before is not None else ""  # or it would still lead, or have ended the run
        write_notice(self._run, Notice(place.job, place.node, "", place.host, 0, "", begun))
        self._progress.say(f"node {place.node} leads")
        identity = identity_of(self._run)
        done = {
            event["detail"]["fault"]
            for event in Record(self._run.record).events(SUPERVISOR)
            if event["event"] == "fault"
        }
        return train_holding(
            self._loaded,
            self._run,
            self._progress,
            self._supervisors,
            tuple(fault for fault in self._faults if str(fault) not in done),
            lock,
            self._folder(identity),
            Lead(place, self._ranks, identity, begun, lost),
        )

    def _follow(self, notice: Notice) -> bool:
        """Whether the run is finished; False when the leader is lost, or this node's supervisor has died."""
        assert notice.address is not None
        self._was_led = False
        copies = self._folder(notice.identity)
        order = Following(self._place, self._ranks, notice.address, notice.token, self._run.path, copies)
        supervisor = self._supervisors.current()
        with listening() as stop, stopping(self._run, stop):
            finished = self._serve(supervisor, order, notice, stop)
            if stop.asked and not finished:
                raise Terminated("asked to stop while there was no leader to follow")
            return finished

    def _serve(self, supervisor: Standby, order: Following, notice: Notice, stop: StopRequest) -> bool:
        try:
            supervisor.follow(order)
            message = self._wait(supervisor, stop)
        except (BrokenPipeError, ConnectionError, EOFError):
            message = None
        if message is None:
            self._supervisors.replace()
            self._judge_death(supervisor)
            return False
        match message["kind"]:
            case "finished":
                return True
            case "failure":
                stop.by = stop.by or message.get("stopped_by")  # all nodes end alike, whichever was asked
                raise as_error(message)
        self._was_led = message["led"]
        if self._was_led:
            self._deaths = 0
            self._progress.say(f"node {notice.node}, which led, is lost")
        return False

    def _wait(self, supervisor: Standby, stop: StopRequest) -> Message | None:
        forwarded = False
        while True:
            if stop.asked and not forwarded and supervisor.process.pid is not None:
                forwarded = True
                os.kill(supervisor.process.pid, passed_on(stop))
            if not connection.wait([supervisor.channel, supervisor.process.sentinel], timeout=0.2):
                continue
            if not supervisor.channel.poll():
                supervisor.process.join()
                return None
            message: Message = supervisor.channel.recv()
            if message["kind"] != "say":
                return message
            self._progress.say(message["line"])

    def _judge_death(self, supervisor: Standby) -> None:
        self._deaths += 1
        code = supervisor.process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if self._deaths >= _DEATHS:
            raise StokerError(f"the supervisor of node {self._place.node} {how}, {self._deaths} times in a row")
        self._progress.say(f"the supervisor {how}, and its ranks with it; starting another")

    def _folder(self, identity: str) -> Path | None:
        """Where this node keeps copies, for as long as this command is there."""
        if self._copies is None:
            wanted = self._loaded.recipe.recovery.copy_every > 0
            checkpoints = checkpoints_of(self._run, self._loaded.recipe.checkpoint)
            manager = copies_of(self._run, checkpoints, self._place.node, wanted, identity)
            self._copies = (self._kept.enter_context(manager),)
        return self._copies[0]
