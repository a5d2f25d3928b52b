"""Ranks on another node: `RemoteCrew` is what the leader holds of them, `Agent` does there what it says."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

from stoker.recovery.blame import RankView
from stoker.recovery.crew import Crew, Sight
from stoker.recovery.faults import Fault
from stoker.recovery.node_copies import NodeCopies, Parcel
from stoker.recovery.node_link import Link, Order
from stoker.recovery.processes import Address, Message
from stoker.training.marks import Mark
from stoker.training.rank import Job
from stoker.training.signals import StopRequest

_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 20.0
"""How long a node that still gives signs of life may take for what takes it an instant."""
_VIEW_SECONDS = 15.0
"""How long looking at ranks closely, or killing them, may keep a supervisor from saying anything."""
_UNSEEN = Mark(
    beats=0, step=0, stood_at=None, phase="starting", since=0, step_seconds=0, waited_seconds=0, forwards=0
)


class RemoteCrew:
    """The leader's side. Whatever is asked of a node that is lost is answered by nothing, at once."""

    def __init__(self, node: str, link: Link, idle: Callable[[], None] = lambda: None) -> None:
        """`idle` is called while an answer is waited for: other nodes must not take the leader for lost."""
        self.node = node
        self.ranks: tuple[int, ...] = ()
        self.stop_asked = False
        """Whether the other node's command was asked to stop."""
        self.stopped_by: int | None = None
        """By which signal."""
        self._link = link
        self._idle = idle
        self._sights: dict[int, Sight] = {}
        self._news: list[Message] = []
        self._answers: dict[int, Any] = {}
        self._asked = 0

    @property
    def is_lost(self) -> bool:
        """Whether the link has broken, or has been silent too long."""
        self._take()
        return self._link.is_broken

    @property
    def is_quiet(self) -> bool:
        """Whether the link has been silent for several beats."""
        self._take()
        return self._link.is_quiet

    @property
    def loss(self) -> str:
        """How it was lost, in words."""
        silence = self._link.silence
        return "its link broke" if silence is None else f"it has not been heard of for {silence:.1f} s"

    def open_meeting(self) -> Address:
        """A port on that node."""
        found: Address | None = self._ask("open_meeting")
        return found or ("", 0)

    def start(self, job: Job, ranks: Sequence[int], meeting: Address, faults: tuple[Fault, ...]) -> None:
        """Have them started."""
        self.ranks = tuple(ranks)
        self._news = []
        self._sights = {rank: Sight(_UNSEEN, "S", None, None, True) for rank in ranks}
        self._link.send("start", job, self.ranks, meeting, faults)

    def waitables(self) -> list[Any]:
        """The link."""
        return [] if self._link.is_broken else [self._link.channel]

    def news(self) -> list[Message]:
        """What the node has passed on."""
        self._take()
        found, self._news = self._news, []
        return found

    def sights(self) -> dict[int, Sight]:
        """What the node saw last."""
        self._take()
        return dict(self._sights)

    def views(self) -> dict[int, RankView]:
        """Have the node look; of a node that is lost nothing is known."""
        found: dict[int, RankView] | None = self._ask("views", seconds=_VIEW_SECONDS + _ANSWER_SECONDS)
        unknown = {rank: RankView("?", sight.mark.beats) for rank, sight in self._sights.items()}
        return found or unknown

    def signal(self, number: signal.Signals) -> None:
        """Have it sent."""
        self._link.send("signal", number)

    def end(self) -> None:
        """Have them killed; a node that is lost kills its ranks itself."""
        if self.ranks:
            self._ask("end", seconds=_VIEW_SECONDS + _ANSWER_SECONDS)
        self.ranks, self._sights = (), {}

    def order(self, *order: Any) -> int:
        """Ask for something whose answer may take a while; returns the question's number."""
        self._asked += 1
        self._link.send(order[0], self._asked, *order[1:])
        return self._asked

    def answer(self, number: int) -> Any:
        """The answer to a question, None while there is none."""
        self._take()
        return self._answers.pop(number, None)

    def tell(self, *order: Any) -> None:
        """Say something that is not answered."""
        self._link.send(*order)

    def busy(self, seconds: float) -> None:
        """Ask the node not to mind a silence."""
        self._link.busy(seconds)

    def beat(self) -> None:
        """Show the node that the leader is there."""
        self._link.beat()

    def let_go(self) -> None:
        """Break the link; the node ends its ranks, and finds another leader."""
        self._link.close()

    def part(self) -> None:
        """Close the link once the node has read everything."""
        self._link.close_when_read()

    def _ask(self, word: str, seconds: float = _ANSWER_SECONDS) -> Any:
        number = self.order(word)
        until = time.monotonic() + seconds
        while (answer := self.answer(number)) is None and not self._link.is_broken:
            connection.wait(self.waitables(), timeout=_LOOK_SECONDS)
            self._idle()
            if time.monotonic() > until:  # it shows that it is there and does nothing
                self._link.close()
        return answer

    def _take(self) -> None:
        for word, *rest in self._link.receive():
            match word:
                case "sights":
                    self._sights.update({rank: sight for rank, sight in rest[0].items() if rank in self.ranks})
                    self._news += rest[1]
                case "answer":
                    self._answers[rest[0]] = rest[1]
                case "stop":
                    self.stop_asked, self.stopped_by = True, rest[0]


class Agent:
    """The other side: keeps this node's ranks as the leader says, and ends them when the leader is lost."""

    def __init__(self, link: Link, crew: Crew, copies: NodeCopies, stop: StopRequest) -> None:
        self._link = link
        self._crew = crew
        self._copies = copies
        self._stop = stop
        self._stop_told = False
        self._running = False
        self._told = 0.0
        self._fetching: int | None = None

    def serve(self) -> Message | None:
        """Obey until the leader says how the run has ended; returns that, or None when the leader is lost."""
        try:
            while True:
                waitables = self._crew.waitables() if self._running else []
                channel = [] if self._link.is_broken else [self._link.channel]
                connection.wait([*channel, *waitables], timeout=_LOOK_SECONDS)
                for order in self._link.receive():
                    if order[0] == "farewell":
                        farewell: Message = order[1]
                        return farewell
                    self._obey(order)
                if self._link.is_broken:
                    return None
                self._report()
        finally:
            self._crew.end()
            self._link.close()

    def _report(self) -> None:
        now = time.monotonic()
        if self._running:
            news = self._crew.news()
            if news or now - self._told >= _LOOK_SECONDS:
                self._told = now
                self._link.send("sights", self._crew.sights(), news)
        if self._stop.asked and not self._stop_told:
            self._stop_told = True
            self._link.send("stop", self._stop.by)
        if self._fetching is not None and (fetched := self._copies.fetched()) is not None:
            self._link.send("answer", self._fetching, fetched)
            self._fetching = None

    def _obey(self, order: Order) -> None:
        word, *rest = order
        match word:
            case "open_meeting":
                self._answer(rest[0], self._crew.open_meeting())
            case "start":
                job, ranks, meeting, faults = rest
                self._crew.start(job, ranks, meeting, faults)
                self._running = True
            case "views":
                self._link.busy(_VIEW_SECONDS)
                self._answer(rest[0], self._crew.views() if self._running else {})
            case "signal":
                self._crew.signal(rest[0])
            case "end":
                self._link.busy(_VIEW_SECONDS)
                self._running = False
                self._crew.end()
                self._answer(rest[0], True)
            case "inventory":
                self._answer(rest[0], self._copies.inventory())
            case "fetch":
                parcels: list[Parcel] = rest[1]
                self._copies.fetch(parcels)
                self._fetching = rest[0]
            case "round":
                self._copies.send_to(rest[0])

    def _answer(self, number: int, what: Any) -> None:
        self._link.send("answer", number, what)
