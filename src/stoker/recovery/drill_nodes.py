"""Several nodes on this machine, for a drill: as many commands, each with ranks and memory of its own."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from functools import partial

from stoker.errors import StokerError
from stoker.recovery.drill_network import DrillNetwork, join
from stoker.recovery.faults import Fault
from stoker.recovery.forked import Forked

_LOOK_SECONDS = 0.05
_DROPPING = ("drop_node", "kill_command")
"""Faults that leave nothing of a node."""


def run_on_nodes(
    nodes: int, train: Callable[[], None], faults: tuple[Fault, ...], network: DrillNetwork | None = None
) -> None:
    """Call `train` on `nodes` nodes, and again on one that a fault has dropped, when its option `back` says so.

    Each node is in a namespace of its own on the `network`; without one all share this machine's loopback. Returns
    when those that are there have finished. Raises `StokerError` when one fails, or none is left.
    """
    job = f"drill-{uuid.uuid4().hex[:12]}"
    drops = [dict(fault.options).get("back", 0.0) for fault in sorted(faults, key=_when) if fault.kind in _DROPPING]
    started = partial(_started, nodes, job, train, network)
    working = {number: started(number) for number in range(nodes)}
    coming_back: dict[int, float] = {}
    finished = 0
    try:
        while working or coming_back:
            time.sleep(_LOOK_SECONDS)
            for node, moment in list(coming_back.items()):
                if not working:  # there is nothing to come back to
                    del coming_back[node]
                elif time.monotonic() >= moment:
                    del coming_back[node]
                    working[node] = started(node)
            for node, command in list(working.items()):
                if not command.is_over:
                    continue
                del working[node]
                try:
                    command.result()
                    finished += 1
                except StokerError:
                    if not (command.was_killed and drops):
                        raise
                    if seconds := drops.pop(0):
                        coming_back[node] = time.monotonic() + seconds
    finally:
        for command in working.values():
            command.end()
    if not finished:
        raise StokerError(f"none of the {nodes} nodes is left")


def _started(nodes: int, job: str, train: Callable[[], None], network: DrillNetwork | None, number: int) -> Forked:
    return Forked(f"the command on node-{number}", _as_node, number, nodes, job, train, network)


def _as_node(number: int, nodes: int, job: str, train: Callable[[], None], network: DrillNetwork | None) -> None:
    node = f"node-{number}"
    place = {"STOKER_NODES": str(nodes), "STOKER_NODE": node, "STOKER_JOB": job, "STOKER_ADDRESS": "127.0.0.1"}
    os.environ.update(place)
    if network is not None:
        os.environ.update(join(network.path, node, number))
    train()


def _when(fault: Fault) -> int:
    return fault.step
