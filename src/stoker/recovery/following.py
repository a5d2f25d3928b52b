"""This node's ranks at the orders of the node that leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoker.recovery.crew import LocalCrew
from stoker.recovery.lease import Lease
from stoker.recovery.node_copies import NodeCopies
from stoker.recovery.node_link import knock
from stoker.recovery.nodes import Place
from stoker.recovery.processes import Address, Message
from stoker.recovery.remote_crew import Agent
from stoker.training.signals import StopRequest

SILENT_SECONDS = 5.0
"""A leader that says nothing for so long is lost. Shorter than what the leader allows: ranks here have ended when
it starts others in their place."""
_KNOCK_SECONDS = 5.0


@dataclass(frozen=True)
class Following:
    """Whom to follow."""

    place: Place
    ranks: int
    """How many this node can hold."""
    leader: Address
    token: str
    run: Path
    copies: Path | None
    """Folder in this node's memory for copies of its ranks' state; None where none are kept."""


def follow(following: Following, stop: StopRequest, tell: Callable[[Message], None]) -> Message:
    """Serve the leader to the end; returns how the run has ended, or that the leader is lost.

    That message's `led` says whether there was a leader at all.
    """
    link = knock(following.leader, following.token, _KNOCK_SECONDS, SILENT_SECONDS)
    if link is None:
        return {"kind": "leader_lost", "led": False}
    place = following.place
    copies = NodeCopies(following.copies, place.host, following.token)
    try:
        link.send("hello", place.node, following.ranks, copies.address)
        tell({"kind": "say", "line": f"node {place.node} follows the leader at {following.leader[0]}"})
        farewell = Agent(link, LocalCrew(place.node, place.host, copies.arranged, Lease()), copies, stop).serve()
        return farewell or {"kind": "leader_lost", "led": True}
    finally:
        copies.close()
