"""The nodes of a run, at the node that leads: who is here, who holds which ranks, and what they go on from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from typing import Any

from stoker.checkpoint import checkpoints_of
from stoker.errors import BadInput, Terminated
from stoker.plural import counted
from stoker.recipe import Recipe
from stoker.recovery.attempt import Attempt, Tell
from stoker.recovery.crew import Crew, LocalCrew
from stoker.recovery.failure import Failure, lost_node
from stoker.recovery.lease import Lease
from stoker.recovery.node_copies import NodeCopies, Round
from stoker.recovery.node_link import Door, Link
from stoker.recovery.nodes import Notice, Place, new_token, write_notice
from stoker.recovery.processes import Address, Message, as_failure
from stoker.recovery.remote_crew import RemoteCrew
from stoker.recovery.resizing import largest
from stoker.recovery.restoring import Holder, choose
from stoker.recovery.tenure import Tenure, require_in_place
from stoker.run_directory import RunDirectory
from stoker.training.rank import Copies, Job
from stoker.training.signals import StopRequest

SILENT_SECONDS = 6.5
"""A node that says nothing for so long is lost. It has ended its ranks by then: see `following`."""
_LOOK_SECONDS = 0.05
_LOOKING_SECONDS = 15.0
_HELLO_SECONDS = 10.0
"""How long a node may be a guest: until it has said who it is, and until an earlier link to it has broken."""
_FETCHES = 3
"""How often fetching copies is tried before the ranks go on from the disk."""
_FIRST_ANNOUNCEMENT, _LONGEST_ANNOUNCEMENT = 1.0, 60.0


@dataclass(frozen=True)
class Lead:
    """What a supervisor needs to lead."""

    place: Place
    ranks: int
    """How many this node can hold."""
    identity: str
    """Of the run."""
    begun: bool
    """Whether ranks of this job have been started before, under this leader or another."""
    lost: str = ""
    """The node that led before and is lost."""


@dataclass
class _Guest:
    """Somebody who knows the token, and who may not have said yet which node it is."""

    link: Link
    since: float
    hello: tuple[str, int, Address | None] | None = None


class Leading:
    """Finds a crew for a job among the nodes that have come, and watches for others to come."""

    def __init__(self, job: Job, lead: Lead, lock: int, stop: StopRequest, tell: Tell) -> None:
        """`lock` is the descriptor of the lock on the run's folder. Raises `Replaced` when another leads."""
        require_in_place(RunDirectory(job.run), lock)
        self._full = job.recipe
        self._run = RunDirectory(job.run)
        self._lead = lead
        self._stop = stop
        self._tell = tell
        self._attempt = job.attempt
        place, token = lead.place, new_token()
        self._copies = NodeCopies(job.snapshots, place.host, token)
        self._own = LocalCrew(place.node, place.host, self._copies.arranged, Lease())
        self._door = Door(place.host, token, SILENT_SECONDS)
        host, port = self._door.address
        self._notice = Notice(place.job, place.node, lead.identity, host, port, token, lead.begun)
        write_notice(self._run, self._notice)
        self._tenure = Tenure(self._run, token, lock)
        self._guests: list[_Guest] = []
        self._others: dict[str, RemoteCrew] = {}
        self._couriers: dict[str, Address | None] = {place.node: self._copies.address}
        self._posts: list[str] = []
        self._found: dict[int, Recipe | None] = {}
        self._size = 0
        """Ranks of the last attempt."""
        self._missing_since = time.monotonic()
        if lead.lost:
            detail = {
                **lost_node(lead.lost, (), "it led, and leads no more", [place.node]).as_detail(),
                "retried": True,
            }
            row = {
                "step": None,
                "event": "failure",
                "attempt": job.attempt - 1,
                "time": time.time(),
                "detail": detail,
            }
            tell({"kind": "event", "row": row})
        self._at_fault: tuple[str, int] = ("", 0)
        self._furthest: int | None = None

    def gather(self, job: Job) -> tuple[Job, list[tuple[Crew, Sequence[int]]]]:
        """The job as it can be done with the nodes that are here, and who does which ranks. Waits for nodes."""
        self._attempt = job.attempt
        recipe, copies = self._agreed(job)
        self._say_size(recipe)
        if not self._notice.begun:
            self._notice = replace(self._notice, begun=True)
            write_notice(self._run, self._notice)
        by_node = self._ranks_by_node(recipe)
        crews: list[tuple[Crew, Sequence[int]]] = [(self._crew(node), ranks) for node, ranks in by_node.items()]
        self._send_rounds(by_node)
        return replace(job, recipe=recipe, copies=copies), crews

    def _agreed(self, job: Job) -> tuple[Recipe, Copies]:
        """What the nodes that are here can do, and what their ranks go on from; all of them are still here."""
        failed, checkpoints = 0, checkpoints_of(self._run, job.recipe.checkpoint)
        while True:
            recipe = self._assemble()
            copies: Copies | None = Copies()
            if job.snapshots is not None and failed < _FETCHES:
                by_node, holders = self._ranks_by_node(recipe), self._holders()
                copies = choose(checkpoints, recipe, holders, by_node, self._furthest, self.look_after)
            self.look_after()
            failed += copies is None
            if copies is not None and all(node in self._nodes for node in self._posts):
                return recipe, copies

    def wants_others(self) -> bool:
        """Whether nodes have come with which the ranks could be more than they are."""
        self.look_after()
        if self._size == self._full.layout.world_size:
            return False
        possible = self._possible()
        return possible is not None and possible.layout.world_size > self._size

    def note(self, failure: Failure, attempt: Attempt) -> None:
        """Learn from how an attempt ended."""
        if attempt.furthest_step is not None:
            self._furthest = attempt.furthest_step
        self.look_after()
        blamed = {
            node for node, ranks in self._ranks_by_node(attempt.job.recipe).items() if {*ranks} & {*failure.ranks}
        }
        node = blamed.pop() if len(blamed) == 1 else ""
        self._at_fault = (node, self._at_fault[1] + 1 if node and node == self._at_fault[0] else 1)

    def look_after(self) -> None:
        """Let nodes in, miss those that are gone, show the others that the leader is there.

        Raises `Replaced` when another leads now.
        """
        self._tenure.confirm()
        now = time.monotonic()
        self._guests += [_Guest(link, now) for link in self._door.let_in()]
        for guest in list(self._guests):
            if self._receive(guest, now):
                self._guests.remove(guest)
        for node, crew in list(self._others.items()):
            if crew.is_lost:
                del self._others[node], self._couriers[node]
                self._missing_since = now
                self._record("node_lost", node=node)
                self._say(f"node {node} was lost")
            elif crew.stop_asked and not self._stop.asked:
                self._stop.asked, self._stop.by = True, crew.stopped_by
                self._say(f"node {node} was asked to stop: all save and end")
            crew.beat()

    def before_silence(self) -> None:
        """Ask the others not to take the leader for lost while it looks closely at ranks that hang."""
        for crew in self._others.values():
            crew.busy(_LOOKING_SECONDS)

    def leave(self) -> None:
        """Another leads: let go of every node, with nothing to tell them."""
        self._door.close()
        for crew in self._others.values():
            crew.let_go()
        for guest in self._guests:
            guest.link.close()
        self._copies.close()

    def close(self, farewell: Message) -> None:
        """Tell every node how the run has ended."""
        self._door.close()
        for crew in self._others.values():
            crew.tell("farewell", farewell)
        for crew in self._others.values():
            crew.part()
        for guest in self._guests:
            guest.link.close()
        self._copies.close()

    @property
    def _nodes(self) -> list[str]:
        """Nodes that are here, this one first."""
        return [self._own.node, *self._others]

    def _crew(self, node: str) -> Crew:
        return self._own if node == self._own.node else self._others[node]

    def _receive(self, guest: _Guest, now: float) -> bool:
        """Whether the guest is one no more: it has become a node of the run, or has been shown out."""
        for word, *rest in guest.link.receive():
            if word == "hello":
                guest.hello = (rest[0], rest[1], rest[2])
        if guest.link.is_broken:
            return True
        late = now - guest.since > _HELLO_SECONDS
        if guest.hello is None:
            return late and self._show_out(guest, "it did not say which node it is")
        node, ranks, courier = guest.hello
        if ranks < self._lead.ranks:
            needed = self._lead.ranks
            return self._show_out(guest, f"it can hold {ranks} ranks, and each node is to hold {needed}")
        if node in self._nodes:  # its earlier link will break, unless there really are two
            return late and self._show_out(guest, "there is a node of that name already; start one command on each")
        self._others[node] = RemoteCrew(node, guest.link, self._beat)
        self._couriers[node] = courier
        self._record("node_joined", node=node)
        self._say(f"node {node} has joined: {counted(len(self._nodes), 'nodes')}")
        return True

    def _show_out(self, guest: _Guest, why: str) -> bool:
        name = guest.hello[0] if guest.hello else "?"
        refusal = BadInput(f"node {name} cannot be in this run: {why}")
        guest.link.send("farewell", as_failure(refusal, 0, self._run))
        guest.link.close()
        return True

    def _beat(self) -> None:
        for crew in self._others.values():
            crew.beat()

    def _assemble(self) -> Recipe:
        """Fill the posts of the largest layout there are nodes for; waits for nodes."""
        began, announced, every = time.monotonic(), 0.0, _FIRST_ANNOUNCEMENT
        needed = self._needed(self._full)
        while True:
            self.look_after()
            if self._stop.asked:
                raise Terminated("asked to stop while waiting for nodes")
            recipe: Recipe | None = None
            if len(self._nodes) >= needed:
                recipe = self._full
            elif self._notice.begun and time.monotonic() - self._missing_since >= self._patience:
                recipe = self._possible()
            if recipe is not None:
                self._fill(self._needed(recipe))
                return recipe
            if time.monotonic() - began - announced >= every:
                announced, every = time.monotonic() - began, min(2 * every, _LONGEST_ANNOUNCEMENT)
                self._say(
                    f"waiting for nodes: {len(self._nodes)} of {needed} are here ({', '.join(self._nodes)}); "
                    f"{self._full.layout.world_size} ranks, {self._lead.ranks} on each node"
                )
            connection.wait(self._door.waitables() + self._waitables(), timeout=_LOOK_SECONDS)

    @property
    def _patience(self) -> float:
        return self._full.recovery.node_wait_seconds

    def _waitables(self) -> list[Any]:
        return [one for crew in self._others.values() for one in crew.waitables()]

    def _possible(self) -> Recipe | None:
        """The largest that the nodes that are here can do; asked all the time, and worked out once."""
        ranks = len(self._nodes) * self._lead.ranks
        if ranks not in self._found:
            self._found[ranks] = largest(self._full, ranks)
        return self._found[ranks]

    def _needed(self, recipe: Recipe) -> int:
        return -(-recipe.layout.world_size // self._lead.ranks)

    def _fill(self, needed: int) -> None:
        """Who was at a post stays there; one at fault twice in a row makes room where there is another."""
        here = self._nodes
        dismissed = self._at_fault[0] if self._at_fault[1] > 1 else ""
        before = [node if node in here else None for node in self._posts[:needed]]
        posts: list[str | None] = [*before, *[None] * (needed - len(before))]
        free = [node for node in here if node not in posts]
        if dismissed in posts and free and dismissed != free[0]:
            posts[posts.index(dismissed)] = None
            self._say(f"node {dismissed} was at fault twice in a row: {free[0]} takes its place")
            self._at_fault = ("", 0)
        self._posts = [node or free.pop(0) for node in posts]

    def _ranks_by_node(self, recipe: Recipe) -> dict[str, range]:
        world, each = recipe.layout.world_size, self._lead.ranks
        return {
            node: range(place * each, min((place + 1) * each, world))
            for place, node in enumerate(self._posts)
            if place * each < world
        }

    def _say_size(self, recipe: Recipe) -> None:
        world = recipe.layout.world_size
        if self._size and world != self._size:
            event = "shrunk" if world < self._size else "grown"
            self._record(event, ranks=world, before=self._size, layout=str(recipe.layout), nodes=list(self._posts))
            self._say(f"{event} from {self._size} to {counted(world, 'ranks')} ({recipe.layout})")
        elif not self._size and world < self._full.layout.world_size:
            full = self._full.layout.world_size
            self._record("shrunk", ranks=world, before=full, layout=str(recipe.layout), nodes=list(self._posts))
            self._say(f"shrunk from {full} to {counted(world, 'ranks')} ({recipe.layout})")
        self._size = world

    def _holders(self) -> list[Holder]:
        own = Holder(self._own.node, self._copies.address, self._copies, None)
        return [own, *(Holder(node, self._couriers[node], None, crew) for node, crew in self._others.items())]

    def _send_rounds(self, by_node: dict[str, range]) -> None:
        """Each node sends its copies to the next; a single one to a spare node."""
        ring = list(by_node)
        spare = [node for node in self._nodes if node not in by_node]
        for node in self._nodes:
            following = ring[(ring.index(node) + 1) % len(ring)] if node in ring else None
            following = spare[0] if following == node and spare else following
            peer = self._couriers.get(following) if following is not None and following != node else None
            now = Round(self._attempt, node, tuple(by_node.get(node, ())), peer)
            if node == self._own.node:
                self._copies.send_to(now)
            else:
                self._others[node].tell("round", now)

    def _record(self, event: str, **detail: Any) -> None:
        row = {
            "step": self._furthest,
            "event": event,
            "attempt": self._attempt,
            "time": time.time(),
            "detail": detail,
        }
        self._tell({"kind": "event", "row": row})

    def _say(self, line: str) -> None:
        self._tell({"kind": "say", "line": line})
