"""How long messages between machines take is measured beside the training, and nothing waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
from torch.distributed import FileStore, HashStore, PrefixStore, TCPStore  # type: ignore[attr-defined]

from stoker.training.machine import MachineWatch
from stoker.training.network_latency import NetworkLatency


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Network:
    """Answers after some seconds; while `cut`, not at all."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.connected = threading.Event()
        self.connected.set()
        self.messages = 0

    def check(self, keys: list[str]) -> bool:
        self.connected.wait()
        time.sleep(self.seconds[self.messages % len(self.seconds)])
        self.messages += 1
        return False


def test_the_quickest_of_several_messages_counts() -> None:
    """This process is busy: now and then a thread of it has to wait for the others."""
    network = Network(0.03, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2)
    latency = NetworkLatency(network, 60.0)
    assert latency.seconds() is None
    until(lambda: latency.seconds() is not None)
    latency.close()
    assert 0.03 <= (latency.seconds() or 0.0) < 0.2
    assert network.messages == 8


def test_an_answer_that_does_not_come_is_told_and_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.training.network_latency._OUTSTANDING_SECONDS", 0.05)
    network = Network(0.0)
    latency = NetworkLatency(network, 0.01)
    until(lambda: latency.seconds() is not None)
    network.connected.clear()
    until(lambda: (latency.seconds() or 0.0) > 0.1)
    begun = time.monotonic()
    latency.close()
    assert time.monotonic() - begun < 1.0
    network.connected.set()


def test_messages_go_over_a_connection_of_their_own_until_the_store_is_gone() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))
    assert NetworkLatency.between_machines(store, 0.0) is None  # where machines are not to be read
    latency = NetworkLatency.between_machines(PrefixStore("ranks", store), 0.01)
    assert latency is not None
    until(lambda: latency.seconds() is not None)
    assert 0 < (latency.seconds() or 0.0) < 1.0
    assert store.num_keys() <= 1  # nothing is written
    del store
    time.sleep(0.05)
    latency.close()


def test_where_the_ranks_met_in_one_machine_nothing_is_measured(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert NetworkLatency.between_machines(None, 1.0) is None  # no group at all
    in_files = FileStore(str(tmp_path_factory.mktemp("met") / "here"), 1)
    for store in (HashStore(), in_files, PrefixStore("ranks", in_files)):
        assert NetworkLatency.between_machines(store, 1.0) is None


def test_the_row_of_a_machine_has_it_where_it_is_known() -> None:
    rows: list[dict[str, object]] = []
    told = iter([None, 0.004])
    watch = MachineWatch(torch.device("cpu"), 0.01, rows.append, of_host=True, latency=lambda: next(told, 0.004))
    until(lambda: len(rows) >= 2)
    watch.close()
    assert "network_latency_seconds" not in rows[0]
    assert rows[1]["network_latency_seconds"] == 0.004
