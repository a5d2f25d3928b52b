"""One start of all ranks, on one node or several, until all have ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection

from stoker.errors import Terminated
from stoker.recovery.blame import wait_for_network
from stoker.recovery.crew import Crew, Sight
from stoker.recovery.failure import Failure, first_failure, hang, killed_rank, lost_node
from stoker.recovery.faults import Fault
from stoker.recovery.processes import Message
from stoker.recovery.silence import Silence
from stoker.training.rank import Job
from stoker.training.signals import StopRequest

_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 0.3
"""How long after the first failure another one may still turn out to be its cause."""
_SAVING_SECONDS = 10.0
"""The same while the ranks were asked to stop: all save before any ends."""
_SUSPECT_SECONDS = 0.5
"""How long a silence is looked at, several times, before it counts: a process that runs is not hanging."""

_NETWORK_PATIENCE = 4.0
"""How many times as long as in any other case ranks may be silent of which none is at fault."""

Tell = Callable[[Message], None]


class Attempt:
    """Ranks at work. `first_step` is the step that they went on from, `last_step` the last that all completed."""

    def __init__(
        self,
        job: Job,
        crews: Sequence[tuple[Crew, Sequence[int]]],
        faults: tuple[Fault, ...],
        silence: Silence,
        stop: StopRequest,
        tell: Tell,
    ) -> None:
        self.job = job
        self.faults_done: set[str] = set()
        self.first_step = self.last_step = 0
        self.furthest_step: int | None = None
        """The last that any rank completed, as far as was seen; None when they did not get to begin."""
        self.forwards = 0
        """Forward passes of training that the ranks began, together."""
        self.interrupted = False
        """Whether the ranks were asked to save and end, to be started otherwise."""
        self.when_begun: Callable[[int], None] = lambda step: None
        """Told once, after which step the ranks go on."""
        self._begun = False
        self._crews = crews
        self._faults = faults
        self._silence = silence
        self._stop = stop
        self._tell = tell
        self._heard = False
        self._suspected_since: float | None = None
        self._patient_until = float("-inf")
        self._slow_since_step: int | None = None
        self._stopping = False
        self._before_silence: Callable[[], None] = lambda: None

    def run(
        self, interrupted: Callable[[], bool] = lambda: False, before_silence: Callable[[], None] = lambda: None
    ) -> Failure | None:
        """None when every rank has done the last step.

        `interrupted` is asked all the time whether these ranks shall save and end, as they do after SIGTERM;
        `before_silence` is called when what follows takes seconds.
        """
        self._before_silence = before_silence
        crews = [crew for crew, _ in self._crews]
        try:
            meeting = crews[0].open_meeting()
            if crews[0].is_lost:
                return self._lost(crews[0], self._crews[0][1])
            for crew, ranks in self._crews:
                crew.start(self.job, ranks, meeting, self._faults)
            self._silence.begin(self.job.recipe.layout.world_size, time.monotonic())
            failure = self._watch(crews, interrupted)
            if failure is not None:
                self._look(crews)  # how far the others have come
            return failure
        finally:
            for crew in crews:
                crew.end()

    def _watch(self, crews: list[Crew], interrupted: Callable[[], bool]) -> Failure | None:
        settle: float | None = None
        before = time.monotonic()
        while True:
            connection.wait([one for crew in crews for one in crew.waitables()], timeout=_POLL_SECONDS)
            asked = interrupted()  # first: these ranks may be this node's to judge no longer
            sights = self._look(crews)
            now = time.monotonic()
            if lost := next((crew for crew in crews if crew.is_lost), None):
                return self._lost(lost, lost.ranks)
            self._silence.look([sights[rank].mark for rank in sorted(sights)], now, max(0.0, now - before - 1.0))
            before = now
            if not any(sight.talks for sight in sights.values()):
                return first_failure(sights)
            if self._stop.asked:
                self._pass_on_stop(crews)
            if asked and not self.interrupted and self.last_step > self.first_step:
                self.interrupted = True
                self._signal(crews)
            if any(sight.failure or sight.exit_code for sight in sights.values()):
                settle = settle or now + (_SAVING_SECONDS if self._stopping else _SETTLE_SECONDS)
                if killed_rank(sights) is not None or now > settle:
                    return first_failure(self._look(crews))
            elif (found := self._find_hang(crews, sights, now)) is not None:
                return found

    def _lost(self, crew: Crew, ranks: Sequence[int]) -> Failure:
        here = [other.node for other, _ in self._crews if not other.is_lost]
        return lost_node(crew.node, tuple(ranks), crew.loss, here)

    def _look(self, crews: list[Crew]) -> Mapping[int, Sight]:
        sights: dict[int, Sight] = {}
        for crew in crews:
            for message in crew.news():
                self._hear(message)
            sights.update(crew.sights())
        marks = [sight.mark for sight in sights.values()]
        self.forwards = max(self.forwards, sum(mark.forwards for mark in marks))
        stood_at = [mark.stood_at for mark in marks if mark.stood_at is not None]
        if marks and len(stood_at) == len(marks):
            self.first_step = min(stood_at)
            self.last_step = max(self.first_step, min(mark.step for mark in marks))
            self.furthest_step = max(mark.step for mark in marks)
            if not self._begun:
                self._begun = True
                self.when_begun(self.first_step)
        return sights

    def _hear(self, message: Message) -> None:
        if message["kind"] == "fault":
            self.faults_done.add(message["fault"])
        elif message["kind"] == "finished":
            return
        else:
            self._heard = True
        self._tell(message)

    def _wait_for_network(self, silent: float) -> None:
        """No rank is at fault: look again when it has taken as long once more."""
        self._patient_until = time.monotonic() + self._silence.shortest_limit
        if self._slow_since_step == self.last_step:
            return
        self._slow_since_step = self.last_step
        row = {"step": self.last_step, "event": "network_slow", "attempt": self.job.attempt, "time": time.time()}
        self._tell({"kind": "event", "row": {**row, "detail": {"silent_seconds": silent}}})
        said = f"all ranks have been inside collectives for {silent:.1f} s: the network is slow, or holds them up"
        self._tell({"kind": "say", "line": f"step {self.last_step + 1:,}: {said}"})

    def _pass_on_stop(self, crews: list[Crew]) -> None:
        if not self._heard and self.last_step == self.first_step:
            raise Terminated("asked to stop while the ranks were starting")
        self._signal(crews)

    def _signal(self, crews: list[Crew]) -> None:
        if not self._stopping:
            self._stopping = True
            for crew in crews:
                crew.signal(signal.SIGTERM)

    def _find_hang(self, crews: list[Crew], sights: Mapping[int, Sight], now: float) -> Failure | None:
        # Those that will have hung for too long once they have been looked at several times.
        states = [sights[rank].state for rank in sorted(sights)]
        hanging = self._silence.hanging(now + _SUSPECT_SECONDS, states)
        # What ranks do on a node that says nothing nobody knows, and others only wait for them: it is lost soon.
        if not hanging or now < self._patient_until or any(crew.is_quiet for crew in crews):
            self._suspected_since = None
            return None
        self._suspected_since = self._suspected_since or now
        if now - self._suspected_since < _SUSPECT_SECONDS:
            return None
        noticed = time.time()
        self._before_silence()
        views = {rank: view for crew in crews for rank, view in crew.views().items()}
        silent = max(self._silence.silent_for(rank, now) for rank in hanging)
        if silent < _NETWORK_PATIENCE * self._silence.shortest_limit and wait_for_network(list(views.values())):
            self._wait_for_network(silent)
            return None
        return hang(views, silent, self._silence.shortest_limit, noticed)
