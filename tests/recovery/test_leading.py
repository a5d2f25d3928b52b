"""Which node holds which ranks, as nodes come, go and are at fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.errors import Terminated
from stoker.recipe import Recipe
from stoker.recovery.leading import Lead, Leading
from stoker.recovery.node_link import Link, knock
from stoker.recovery.nodes import Place, read_notice
from stoker.recovery.processes import Message
from stoker.run_directory import RunDirectory
from stoker.training.rank import Job
from stoker.training.signals import StopRequest
from tests.end_to_end.small_job import recipe as small


class Nodes:
    """A leader of node `a`, and others that do nothing but join and go."""

    def __init__(self, folder: Path, lock: int, ranks: int, begun: bool, wait: float) -> None:
        recovery = {"ranks_per_node": 1, "node_wait_seconds": wait}
        recipe = Recipe.model_validate(
            small(layout={"dp_replicate": ranks}, recovery=recovery, training__global_batch_size=12)
        )
        self.run, self.stop, self.told = RunDirectory(folder), StopRequest(), list[Message]()
        self.job = Job(recipe, folder, folder, 1)
        lead = Lead(Place("a", ranks, "job", "127.0.0.1"), 1, "f" * 32, begun)
        self.leader = Leading(self.job, lead, lock, self.stop, self.told.append)
        self.links: dict[str, Link] = {}

    def join(self, node: str, ranks: int = 1) -> None:
        notice = read_notice(self.run)
        assert notice is not None
        assert notice.address is not None
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(knock(notice.address, notice.token, 5, 60)))
        thread.start()
        while thread.is_alive():
            self.leader.look_after()
        self.links[node] = found[0]
        self.links[node].send("hello", node, ranks, None)

    def lose(self, node: str) -> None:
        self.links.pop(node).close()

    def posts(self) -> list[tuple[str, list[int]]]:
        _, crews = self.leader.gather(self.job)
        return [(crew.node, list(ranks)) for crew, ranks in crews]

    def said(self) -> str:
        return "\n".join(message["line"] for message in self.told if message["kind"] == "say")


@contextmanager
def nodes(folder: Path, ranks: int = 2, begun: bool = False, wait: float = 0.0) -> Iterator[Nodes]:
    with RunDirectory(folder).held("train") as lock:
        found = Nodes(folder, lock, ranks, begun, wait)
        yield found
        for link in found.links.values():
            link.close()
        found.leader.close({"kind": "finished"})


def test_the_others_keep_their_ranks_when_a_spare_takes_a_place(tmp_path: Path) -> None:
    with nodes(tmp_path, 3) as some:
        for node in ("b", "c", "d"):
            some.join(node)
        assert some.posts() == [("a", [0]), ("b", [1]), ("c", [2])]
        some.lose("b")
        assert some.posts() == [("a", [0]), ("d", [1]), ("c", [2])]
        events = [message["row"]["event"] for message in some.told if message["kind"] == "event"]
        assert events == ["node_joined"] * 3 + ["node_lost"]


def test_without_a_spare_there_are_fewer_ranks_until_a_node_comes(tmp_path: Path) -> None:
    with nodes(tmp_path) as some:
        some.join("b")
        assert some.posts() == [("a", [0]), ("b", [1])]
        assert not some.leader.wants_others()
        some.lose("b")
        assert some.posts() == [("a", [0])]
        assert not some.leader.wants_others()
        some.join("c")
        assert some.leader.wants_others()
        assert some.posts() == [("a", [0]), ("c", [1])]
        rows = [message["row"] for message in some.told if message["kind"] == "event"]
        sizes = [(row["event"], row["detail"]["ranks"]) for row in rows if row["event"] in ("shrunk", "grown")]
        assert sizes == [("shrunk", 1), ("grown", 2)]


def test_a_first_start_waits_for_all_nodes_and_says_so(tmp_path: Path) -> None:
    with nodes(tmp_path) as some:

        def tell(message: Message) -> None:
            some.told.append(message)
            some.stop.asked = True

        some.leader._tell = tell
        with pytest.raises(Terminated):
            some.posts()
        assert "waiting for nodes: 1 of 2 are here (a); 2 ranks, 1 on each node" in some.said()


def test_a_leader_that_takes_over_waits_only_so_long(tmp_path: Path) -> None:
    with nodes(tmp_path, begun=True, wait=0.2) as some:
        assert some.posts() == [("a", [0])]
        assert "shrunk from 2 to 1" in some.said()


def test_a_node_that_holds_too_few_ranks_or_is_there_already_is_shown_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes(tmp_path) as some:
        some.join("a")
        some.join("b", ranks=0)
        some.leader.look_after()
        monkeypatch.setattr("stoker.recovery.leading._HELLO_SECONDS", 0.0)
        answers: dict[str, Message] = {}
        while len(answers) < 2:
            some.leader.look_after()
            for node, link in some.links.items():
                for _, farewell in link.receive():
                    answers[node] = farewell
        assert "it can hold 0 ranks, and each node is to hold 1" in answers["b"]["message"]
        assert "there is a node of that name already" in answers["a"]["message"]
        assert {answer["exit_code"] for answer in answers.values()} == {2}


def test_a_node_at_fault_twice_in_a_row_makes_room_for_a_spare(tmp_path: Path) -> None:
    with nodes(tmp_path) as some:
        some.join("b")
        some.join("c")
        assert some.posts() == [("a", [0]), ("b", [1])]
        for expected in ("b", "c"):
            some.leader.note(_failure_of(1), _attempt(some.job))
            assert some.posts() == [("a", [0]), (expected, [1])]
        assert "node b was at fault twice in a row: c takes its place" in some.said()


def _failure_of(rank: int) -> Any:
    return SimpleNamespace(ranks=(rank,))


def _attempt(job: Job) -> Any:
    return SimpleNamespace(job=job, furthest_step=3)
