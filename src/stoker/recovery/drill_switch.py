"""A switch for Ethernet frames between a drill's nodes, which can be told to be a bad network."""

from __future__ import annotations

import heapq
import os
import random
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_FRAME_BYTES = 65_536
_FRAMES_AT_ONCE = 64
_QUEUE_SECONDS = 0.5
"""A frame that would have to wait longer for its turn on a slow link is dropped, as by any router."""


@dataclass
class Port:
    """Where one node is connected."""

    device: int
    """The TAP's descriptor."""
    delay: float = 0.0
    """Seconds that each frame to or from the node takes longer."""
    jitter: float = 0.0
    """Seconds that it may take longer still, drawn for each frame."""
    rate: float = 0.0
    """Bytes a second each way; 0: as many as come."""
    cut_until: float = 0.0
    """Nothing passes until then: seconds of the monotonic clock."""
    free: dict[str, float] = field(default_factory=dict)
    """When the link has carried what it was given, by direction."""


class Switch:
    """Knows the ports, and decides when each frame arrives. It reads no clock and no device itself."""

    def __init__(self, dice: random.Random) -> None:
        self.ports: dict[str, Port] = {}
        self._by_number: dict[int, str] = {}
        self._dice = dice
        self._last: dict[tuple[str, str], float] = {}
        self._waiting: list[tuple[float, int, str, bytes]] = []
        self._frames = 0

    def join(self, node: str, number: int, device: int) -> int | None:
        """Connect a node; returns the descriptor that it had before, when it was there before."""
        before = self.ports.get(node)
        self.ports[node] = Port(device) if before is None else Port(device, cut_until=before.cut_until)
        self._by_number[number] = node
        return None if before is None else before.device

    def take(self, source: str, frame: bytes, now: float) -> None:
        """A frame comes from a node: decide for each receiver when it arrives, or that it does not."""
        if frame[0] & 1:  # to all
            targets = [node for node in self.ports if node != source]
        else:
            target = self._by_number.get(frame[5])
            targets = [target] if target in self.ports and target != source else []
        for target in targets:
            moment = self._arrival(source, target, len(frame), now)
            if moment is not None:
                self._frames += 1
                heapq.heappush(self._waiting, (moment, self._frames, target, frame))

    def due(self, now: float) -> list[tuple[str, bytes]]:
        """Frames that arrive by now, and at which node."""
        found = []
        while self._waiting and self._waiting[0][0] <= now:
            _, _, target, frame = heapq.heappop(self._waiting)
            if target in self.ports and self.ports[target].cut_until <= now:
                found.append((target, frame))
        return found

    @property
    def next_arrival(self) -> float | None:
        """When the next frame arrives; None when none is under way."""
        return self._waiting[0][0] if self._waiting else None

    def _arrival(self, source: str, target: str, size: int, now: float) -> float | None:
        moment = now
        for node, way in ((source, "out"), (target, "in")):
            port = self.ports[node]
            if port.cut_until > now:
                return None
            if port.rate:
                begins = max(moment, port.free.get(way, 0.0))
                if begins - now > _QUEUE_SECONDS:
                    return None
                moment = port.free[way] = begins + size / port.rate
        for node in (source, target):
            port = self.ports[node]
            moment += port.delay + (self._dice.uniform(0, port.jitter) if port.jitter else 0.0)
        # One path keeps frames in order, whatever each of them drew.
        moment = max(moment, self._last.get((source, target), 0.0))
        self._last[source, target] = moment
        return moment


def obey(switch: Switch, order: str, devices: list[int], now: float) -> Callable[[], None]:
    """Do what a client asks; returns what ends it again when the client goes. Raises `ValueError` for nonsense."""
    word, node, *numbers = order.split()
    if word == "join":
        before = switch.join(node, int(numbers[0]), devices[0])
        if before is not None:
            os.close(before)
        return lambda: None
    if node not in switch.ports:
        raise ValueError(f"there is no node {node}")
    port, values = switch.ports[node], [float(one) for one in numbers]
    match word:
        case "cut":
            port.cut_until = now + values[0]
            return lambda: None
        case "delay":
            port.delay, port.jitter = values

            def no_delay() -> None:
                port.delay = port.jitter = 0.0

            return no_delay
        case "rate":
            (port.rate,) = values

            def no_limit() -> None:
                port.rate = 0.0

            return no_limit
    raise ValueError(f"no order is called {word}")


def serve(listener: socket.socket, dice: random.Random) -> None:
    """Carry frames and obey clients until the process is killed."""
    switch = Switch(dice)
    clients: dict[socket.socket, list[Callable[[], None]]] = {}
    while True:
        devices = {port.device: node for node, port in switch.ports.items()}
        arrival = switch.next_arrival
        wait = None if arrival is None else max(0.0, arrival - time.monotonic())
        everything: list[Any] = [listener, *clients, *devices]
        for one in select.select(everything, [], [], wait)[0]:
            if one is listener:
                clients[listener.accept()[0]] = []
            elif isinstance(one, socket.socket):
                _hear(switch, one, clients)
            else:
                _read(switch, devices[one], one)
        for target, frame in switch.due(time.monotonic()):
            _write(switch.ports[target].device, frame)


def _hear(switch: Switch, client: socket.socket, clients: dict[socket.socket, list[Callable[[], None]]]) -> None:
    try:
        said, devices, _, _ = socket.recv_fds(client, 1024, 1)
    except OSError:
        said, devices = b"", []
    if not said:
        for end in clients.pop(client):
            end()
        client.close()
        return
    try:
        clients[client].append(obey(switch, said.decode(), devices, time.monotonic()))
        answer = "done"
    except (ValueError, IndexError) as error:
        answer = str(error)
    client.send(answer.encode())


def _read(switch: Switch, node: str, device: int) -> None:
    if switch.ports[node].device != device:  # the node has come anew in the same turn
        return
    for _ in range(_FRAMES_AT_ONCE):
        try:
            frame = os.read(device, _FRAME_BYTES)
        except BlockingIOError:
            return
        except OSError:  # its namespace is gone; the next command on the node brings another
            del switch.ports[node]
            os.close(device)
            return
        switch.take(node, frame, time.monotonic())


def _write(device: int, frame: bytes) -> None:
    try:
        os.write(device, frame)
    except OSError:  # full, or gone: a frame is lost
        return
