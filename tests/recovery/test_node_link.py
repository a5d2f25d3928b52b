"""Links between nodes, and a crew at the other end of one."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.errors import BadInput
from stoker.recovery import node_link
from stoker.recovery.blame import RankView
from stoker.recovery.crew import Sight
from stoker.recovery.faults import Fault
from stoker.recovery.node_copies import NodeCopies
from stoker.recovery.node_link import Door, Link, knock
from stoker.recovery.processes import Address, Message
from stoker.recovery.remote_crew import Agent, RemoteCrew
from stoker.training.marks import Mark
from stoker.training.rank import Job
from stoker.training.signals import StopRequest

SILENT = 0.6
JOB: Any = "what is to be done"
FAREWELL = {"kind": "finished"}


class Scripted:
    """A crew that does nothing and remembers what it was told."""

    is_lost = False

    def __init__(self) -> None:
        self.node, self.ranks, self.told = "b", (), list[Any]()
        self.unread: list[Message] = []

    def open_meeting(self) -> Address:
        return "127.0.0.1", 4711

    def start(self, job: Job, ranks: Sequence[int], meeting: Address, faults: tuple[Fault, ...]) -> None:
        self.ranks = tuple(ranks)
        self.told.append(("start", job, self.ranks, meeting, faults))

    def waitables(self) -> list[Any]:
        return []

    def news(self) -> list[Message]:
        found, self.unread = self.unread, []
        return found

    def sights(self) -> dict[int, Sight]:
        mark = Mark(7, 3, 0, "forward", 0.0, 0.1, 0.0, 0)
        return {rank: Sight(mark, "R", None, None, True) for rank in self.ranks}

    def views(self) -> dict[int, RankView]:
        return {rank: RankView("R", 7) for rank in self.ranks}

    def signal(self, number: signal.Signals) -> None:
        self.told.append(("signal", number))

    def end(self) -> None:
        self.told.append(("end",))


def pair(silent_seconds: float = SILENT) -> tuple[Link, Link]:
    ours, theirs = socket.socketpair()
    return Link(ours, silent_seconds), Link(theirs, silent_seconds)


@contextmanager
def serving(link: Link, crew: Scripted, stop: StopRequest | None = None) -> Iterator[list[Message | None]]:
    """An agent at the other end, in a thread; the list holds what it returns."""
    farewell: list[Message | None] = []
    agent = Agent(link, crew, NodeCopies(None, "127.0.0.1", ""), stop or StopRequest())
    thread = threading.Thread(target=lambda: farewell.append(agent.serve()))
    thread.start()
    yield farewell
    thread.join(10)
    assert farewell, "the agent is still there"


def until(condition: Any, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_remote_crew_does_what_a_crew_does() -> None:
    ours, theirs = pair(5.0)
    there, crew = Scripted(), RemoteCrew("b", ours)
    with serving(theirs, there) as farewell:
        assert crew.open_meeting() == ("127.0.0.1", 4711)
        crew.start(JOB, (2, 3), ("host", 1), ())
        until(lambda: crew.sights()[2].mark.step == 3)
        there.unread.append({"kind": "step", "step": 3})
        until(lambda: crew.news() == [{"kind": "step", "step": 3}])
        assert crew.views() == {2: RankView("R", 7), 3: RankView("R", 7)}
        crew.signal(signal.SIGTERM)
        crew.end()
        assert crew.ranks == ()
        assert crew.sights() == {}
        crew.tell("farewell", FAREWELL)
        crew.part()
    assert farewell == [FAREWELL]
    assert there.told == [
        ("start", JOB, (2, 3), ("host", 1), ()),
        ("signal", signal.SIGTERM),
        ("end",),
        ("end",),  # at the farewell, whatever is still alive
    ]


def test_ranks_end_when_the_leader_is_lost() -> None:
    ours, theirs = pair()
    there, crew = Scripted(), RemoteCrew("b", ours)
    with serving(theirs, there) as farewell:
        crew.start(JOB, (0,), ("host", 1), ())
        until(lambda: there.told)
        ours.close()
    assert farewell == [None]
    assert there.told[-1] == ("end",)


def test_ranks_end_when_the_leader_is_silent_though_the_link_is_whole() -> None:
    ours, theirs = pair()
    there = Scripted()
    began = time.monotonic()
    with serving(theirs, there) as farewell:
        pass  # nobody beats at this end
    assert farewell == [None]
    assert SILENT <= time.monotonic() - began < 10 * SILENT
    ours.close()


def test_a_crew_whose_link_breaks_is_lost_and_answers_at_once() -> None:
    ours, theirs = pair()
    crew = RemoteCrew("b", ours)
    crew.start(JOB, (4, 5), ("host", 1), ())
    assert not crew.is_lost
    theirs.close()
    assert crew.open_meeting() == ("", 0)
    assert crew.is_lost
    assert {rank: view.state for rank, view in crew.views().items()} == {4: "?", 5: "?"}
    assert set(crew.sights()) == {4, 5}, "an attempt looks once more at ranks that are lost"
    crew.signal(signal.SIGTERM)
    crew.end()
    assert crew.waitables() == []


def test_a_silence_that_was_announced_breaks_nothing() -> None:
    ours, theirs = pair(0.2)
    theirs.busy(60.0)
    time.sleep(0.3)
    assert ours.receive() == []
    assert not ours.is_broken
    ours.close()
    theirs.close()


def test_a_time_in_which_nobody_looked_counts_for_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(node_link, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ours, theirs = pair(5.0)
    now[0] += 100.0  # this process was stopped
    ours.receive()
    assert not ours.is_broken
    for _ in range(5):
        now[0] += 0.9
        ours.receive()
    assert ours.is_broken, "it has looked all the time, and nothing came"
    theirs.close()


def test_a_command_that_is_asked_to_stop_tells_the_leader() -> None:
    ours, theirs = pair(5.0)
    crew, stop = RemoteCrew("b", ours), StopRequest()
    with serving(theirs, Scripted(), stop):
        assert not crew.stop_asked
        stop.asked = True
        until(lambda: not crew.is_lost and crew.stop_asked)
        ours.close()


def test_a_door_lets_in_who_knows_the_token_and_waits_for_nobody() -> None:
    door = Door("127.0.0.1", "token", SILENT)
    found: list[Link | None] = []
    strangers = [socket.create_connection(door.address) for _ in range(3)]
    strangers[1].sendall(bytes(64))
    strangers[2].sendall(b"only the beginning")
    knocking = threading.Thread(target=lambda: found.append(knock(door.address, "token", 5, SILENT)))
    knocking.start()
    links: list[Link] = []
    longest = 0.0
    while not links:
        began = time.monotonic()
        links += door.let_in()
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.005)
    knocking.join()
    (inside,), (outside,) = links, found
    assert outside is not None
    outside.send("hello", "b")
    until(lambda: inside.receive() == [("hello", "b")])
    assert longest < 1.0, "a stranger kept the door"
    assert strangers[1].recv(1) == b"", "who says something wrong is shown out"
    for link in (inside, outside):
        link.close()
    for stranger in strangers:
        stranger.close()
    door.close()


def test_an_address_of_another_machine_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadInput, match=r"cannot listen at 192\.0\.2\.1: .*STOKER_ADDRESS"):
        Door("192.0.2.1", "token", SILENT)


def test_who_does_not_know_the_token_is_not_taken_for_the_leader() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connected, _ = listener.accept()
        connected.recv(64)
        connected.sendall(bytes(32))
        connected.close()

    thread = threading.Thread(target=answer)
    thread.start()
    assert knock(listener.getsockname()[:2], "token", 5, SILENT) is None
    thread.join()
    listener.close()
    assert knock(("127.0.0.1", 1), "token", 1, SILENT) is None, "nobody listens there"


def test_without_a_folder_there_are_no_copies() -> None:
    copies = NodeCopies(None, "127.0.0.1", "")
    assert copies.inventory() == []
    copies.fetch([])
    assert copies.fetched() is False
    assert copies.address is None
    copies.close()
