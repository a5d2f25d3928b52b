"""Ranks that torchrun starts on two machines: the run is watched as any other, and so is their network."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.record import MONITOR, Record
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import stoker, write_job
from tests.preloaded import environment

pytestmark = pytest.mark.slow
WATCHED = ("alerts.own=[{name: above_nothing, figure: loss, above: 0}]", "telemetry.machine_seconds=0.05")


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def node(recipe: Path, number: int, port: int, *overrides: str) -> subprocess.Popen[str]:
    """torchrun on one of two machines, with one rank each."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    place = [f"--node-rank={number}", "--master-addr=127.0.0.1", f"--master-port={port}"]
    verb = ["-m", "stoker", "train", str(recipe), "layout.dp_shard=2", *overrides]
    return subprocess.Popen(
        [*launcher, *place, *verb],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
    )  # fmt: skip


def test_a_run_that_torchrun_started_is_watched_and_its_network_measured(tmp_path: Path) -> None:
    recipe = write_job(tmp_path)
    assert stoker("prepare", recipe).returncode == 0
    port = free_port()
    nodes = [node(recipe, number, port, *WATCHED) for number in (0, 1)]
    said = [one.communicate(timeout=240)[0] for one in nodes]
    assert [one.returncode for one in nodes] == [0, 0], said
    assert "alert above_nothing firing" in said[0]
    assert "alert above_nothing" not in said[1]
    record = Record(RunDirectory(tmp_path / "runs" / "small").record)
    assert [one["detail"]["rule"] for one in record.events(MONITOR) if one["event"] == "alert"] == ["above_nothing"]
    for rank in (0, 1):
        latency = record.rows("machine", rank=rank)["network_latency_seconds"].drop_nulls()
        assert latency.len()
        assert latency.min() > 0
