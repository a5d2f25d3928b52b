"""The ranks of one node: started, seen, asked and ended together."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

from stoker.recovery.blame import GroupView, RankView
from stoker.recovery.faults import Fault
from stoker.recovery.lease import Lease
from stoker.recovery.looking import ANSWER_SECONDS, ask, states_of, views_of
from stoker.recovery.processes import Address, Message, RankProcess, end_ranks, groups_in, start_ranks
from stoker.training.marks import Board, Mark
from stoker.training.out_of_memory import oom_kills
from stoker.training.rank import Job

_KILLS = Path("/proc/vmstat")
"""Where Linux counts what it kills for memory."""


@dataclass(frozen=True)
class Sight:
    """What is seen of one rank from outside."""

    mark: Mark
    state: str
    """Of its process, as the system names it."""
    exit_code: int | None
    failure: Message | None
    """What it said of itself when it failed."""
    talks: bool
    """Whether there may be messages of it still to come."""
    memory_ran_out: bool | None = False
    """Whether it was killed after the system of its node had begun to kill for memory; None where that system does
    not count what it kills."""


class Crew(Protocol):
    """Ranks on one node, which may be this one or another."""

    node: str
    ranks: tuple[int, ...]

    def open_meeting(self) -> Address:
        """Where all ranks will find each other, if rank 0 is of this crew."""

    def start(self, job: Job, ranks: Sequence[int], meeting: Address, faults: tuple[Fault, ...]) -> None:
        """Start `ranks` of `job`."""

    def waitables(self) -> list[Any]:
        """What becomes ready when there is news."""

    def news(self) -> list[Message]:
        """Messages of ranks since the last time."""

    def sights(self) -> dict[int, Sight]:
        """What is seen of each rank now."""

    def views(self) -> dict[int, RankView]:
        """A closer look at each rank, which may take seconds."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every rank that lives."""

    def end(self) -> None:
        """Kill what lives, and wait until nothing does."""

    @property
    def is_lost(self) -> bool:
        """Whether the node cannot be reached any more."""

    @property
    def is_quiet(self) -> bool:
        """Whether it has not shown for a while that it is there, and may be about to be lost."""

    @property
    def loss(self) -> str:
        """How the node was lost, in words."""


class LocalCrew:
    """Ranks forked from this process."""

    is_lost = is_quiet = False
    loss = ""

    def __init__(
        self,
        node: str,
        host: str,
        arranged: Callable[[Job], Job] = lambda job: job,
        lease: Lease | None = None,
    ) -> None:
        """`arranged` puts into a job what is this node's own. Ranks go on only while whoever has this crew looks at
        them, if there is a `lease`."""
        self.node = node
        self.ranks: tuple[int, ...] = ()
        self._host = host
        self._arranged = arranged
        self._meeting: socket.socket | None = None
        self._processes: list[RankProcess] = []
        self._board: Board | None = None
        self._answers: dict[int, dict[str, GroupView]] = {}
        self._killed_before = 0
        self._lease = lease
        self._unread: list[Message] = []

    def open_meeting(self) -> Address:
        """A port that the system chooses; rank 0 takes it over."""
        self._meeting = socket.create_server((self._host, 0), backlog=4096)
        return self._host, self._meeting.getsockname()[1]

    def start(self, job: Job, ranks: Sequence[int], meeting: Address, faults: tuple[Fault, ...]) -> None:
        """Fork them."""
        self.ranks, self._answers, self._killed_before = tuple(ranks), {}, oom_kills()
        self._board = Board(len(ranks))
        if self._lease is not None:
            self._lease.renew()
        self._processes = start_ranks(
            self._arranged(job), self.ranks, self._board, meeting, self._meeting, faults, self._lease
        )
        if self._meeting is not None:
            self._meeting.close()
            self._meeting = None

    def waitables(self) -> list[Any]:
        """Pipes of those that talk, and ends of those that live."""
        found: list[Any] = [one.messages for one in self._processes if one.listening]
        return found + [one.process.sentinel for one in self._processes if one.is_alive]

    def news(self) -> list[Message]:
        """What ranks have said; answers to questions are kept for `views`."""
        found, self._unread = self._unread, []
        for rank, one in zip(self.ranks, self._processes, strict=True):
            alive = one.is_alive  # asked first: what a rank said before it ended is read before it counts as silent
            while one.listening and one.messages.poll():
                if (message := one.receive()) is None:
                    continue
                if message["kind"] == "collectives":
                    self._answers[rank] = groups_in(message)
                else:
                    found.append(message)
            if not alive:
                one.listening = False
        return found

    def sights(self) -> dict[int, Sight]:
        """From the board and from the system."""
        assert self._board is not None
        if self._lease is not None:
            self._lease.renew()
        states = states_of([one.process.pid for one in self._processes])
        return {
            rank: self._sight(one, mark, state)
            for rank, one, mark, state in zip(
                self.ranks, self._processes, self._board.read_all(), states, strict=True
            )
        }

    def _sight(self, one: RankProcess, mark: Mark, state: str) -> Sight:
        code = one.process.exitcode
        memory: bool | None = code == -signal.SIGKILL and oom_kills() > self._killed_before
        if code == -signal.SIGKILL and not _KILLS.exists():
            memory = None
        return Sight(mark, state, code, one.failure, one.listening or one.is_alive, memory)

    def views(self) -> dict[int, RankView]:
        """Ask every rank for its collectives, and read every stack."""
        assert self._board is not None
        ask([one.messages for one in self._processes if one.listening])
        until = time.monotonic() + ANSWER_SECONDS
        while len(self._answers) < len(self.ranks) and (left := until - time.monotonic()) > 0:
            connection.wait(self.waitables(), timeout=min(left, 0.05))
            self._unread += self.news()
        answers = {place: self._answers[rank] for place, rank in enumerate(self.ranks) if rank in self._answers}
        found = views_of([one.process.pid for one in self._processes], answers, self._board.read_all())
        return dict(zip(self.ranks, found, strict=True))

    def signal(self, number: signal.Signals) -> None:
        """Send it."""
        for one in self._processes:
            with contextlib.suppress(ProcessLookupError):
                one.signal(number)

    def end(self) -> None:
        """Kill what lives; the meeting is over as well."""
        end_ranks(self._processes)
        self._processes, self.ranks = [], ()
        for thing in (self._meeting, self._board):
            if thing is not None:
                thing.close()
        self._meeting = self._board = None
