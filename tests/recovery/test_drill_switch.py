"""The switch between a drill's nodes: what it does to frames, and that nodes are really joined by it."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from pathlib import Path

import pytest

from stoker.recovery.drill_network import DrillNetwork, address_of, ask_network, join, why_not
from stoker.recovery.drill_switch import Switch, obey
from stoker.recovery.forked import Forked


def frame(target: int | None, size: int = 1000) -> bytes:
    """To the node of a number, or to all."""
    to = b"\xff" * 6 if target is None else b"\x02\x53\x54\x4b\x00" + bytes([target])
    return to.ljust(size, b"\0")


def switch_of(nodes: int) -> Switch:
    switch = Switch(random.Random(0))
    for number in range(nodes):
        switch.join(f"node-{number}", number, device=100 + number)
    return switch


def arrivals(switch: Switch, until: float) -> list[str]:
    return [target for target, _ in switch.due(until)]


def test_a_frame_goes_to_its_node_alone_and_a_broadcast_to_all_others() -> None:
    switch = switch_of(3)
    switch.take("node-0", frame(2), 0.0)
    switch.take("node-0", frame(None), 0.0)
    switch.take("node-0", frame(0), 0.0)
    switch.take("node-0", frame(9), 0.0)
    assert arrivals(switch, 0.0) == ["node-2", "node-1", "node-2"]


def test_a_delay_holds_up_both_ways_and_ends_with_who_asked_for_it() -> None:
    switch = switch_of(3)
    end = obey(switch, "delay node-1 0.05 0", [], 0.0)
    switch.take("node-0", frame(1), 1.0)
    switch.take("node-1", frame(2), 1.0)
    switch.take("node-0", frame(2), 1.0)
    assert arrivals(switch, 1.04) == ["node-2"]
    assert switch.next_arrival == pytest.approx(1.05)
    assert sorted(arrivals(switch, 1.06)) == ["node-1", "node-2"]
    end()
    switch.take("node-0", frame(1), 2.0)
    assert arrivals(switch, 2.0) == ["node-1"]


def test_jitter_keeps_the_frames_of_one_way_in_order() -> None:
    switch = switch_of(2)
    obey(switch, "delay node-1 0 0.1", [], 0.0)
    for number in range(50):
        switch.take("node-0", frame(1, 100 + number), number * 1e-3)
    sizes = [len(one) for _, one in switch.due(10.0)]
    assert sizes == [100 + number for number in range(50)]


def test_a_rate_carries_so_many_bytes_a_second_and_drops_what_would_wait_long() -> None:
    switch = switch_of(2)
    obey(switch, "rate node-1 10000", [], 0.0)
    for _ in range(100):  # ten seconds' worth at once
        switch.take("node-0", frame(1, 1000), 0.0)
    assert len(arrivals(switch, 0.25)) == 2
    assert len(arrivals(switch, 60.0)) == 4, "what would wait for longer than half a second is lost"


def test_a_cut_node_is_reached_by_nobody_until_the_time_is_over() -> None:
    switch = switch_of(3)
    switch.take("node-0", frame(1), 0.0)
    obey(switch, "cut node-1 5", [], 0.0)
    switch.take("node-0", frame(1), 1.0)
    switch.take("node-1", frame(0), 1.0)
    switch.take("node-2", frame(0), 1.0)
    assert arrivals(switch, 4.9) == ["node-0"], "what is under way is lost, too; the others reach each other"
    switch.take("node-0", frame(1), 5.1)
    assert arrivals(switch, 5.1) == ["node-1"]


def test_what_no_switch_can_do_is_refused() -> None:
    switch = switch_of(1)
    with pytest.raises(ValueError, match="no node node-7"):
        obey(switch, "cut node-7 5", [], 0.0)
    with pytest.raises(ValueError, match="no order is called flip"):
        obey(switch, "flip node-0 5", [], 0.0)


def test_nodes_in_namespaces_reach_each_other_through_the_switch_alone() -> None:
    if said := why_not():
        pytest.skip(said)
    network = DrillNetwork()
    try:
        listening = Forked("listener", _echo, network.path)
        delayed, plain = Forked("caller", _call, network.path).result()
        assert listening.result() == address_of(1)
    finally:
        network.close()
    assert delayed > 0.1 > plain, "there and back, 60 ms each way"


def _echo(path: str) -> str:
    os.environ.update(join(path, "node-0", 0), STOKER_NODE="node-0")
    with socket.create_server((address_of(0), 4711)) as door:
        connected, (caller, _) = door.accept()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while said := connected.recv(64):
            connected.sendall(said)
    return str(caller)


def _call(path: str) -> tuple[float, float]:
    os.environ.update(join(path, "node-1", 1), STOKER_NODE="node-1")
    routes = Path("/proc/self/net/route").read_text(encoding="ascii").splitlines()[1:]
    assert {line.split()[0] for line in routes} == {"stoker0"}, "there is no way out of the drill"
    until = time.monotonic() + 20
    while True:
        try:
            connected = socket.create_connection((address_of(0), 4711), timeout=1)
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.02)
    connected.settimeout(10)
    asked = ask_network("delay", 0.06, 0.0)
    delayed = min(_round_trip(connected) for _ in range(3))
    asked.close()
    time.sleep(0.3)
    return delayed, min(_round_trip(connected) for _ in range(20))


def _round_trip(connected: socket.socket) -> float:
    began = time.monotonic()
    connected.sendall(struct.pack("d", began))
    assert connected.recv(64)
    return time.monotonic() - began
