"""`stoker bench collectives` from end to end: what it writes and prints, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from stoker import cli
from stoker.bench.results import read_measurements
from stoker.bench.trials import Trial
from stoker.errors import BadInput

_QUICK = ("--rounds", "2", "--sizes", "1k,4k", "--device", "cpu")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.application, ["bench", "collectives", *_QUICK, *arguments])


def test_json_is_what_the_file_holds(tmp_path: Path) -> None:
    done = _run("--ranks", "3", "--node-size", "2", "--json")
    assert done.exit_code == 0, done.exception
    printed = json.loads(done.stdout)
    (kept,) = read_measurements(tmp_path / "collectives.json").measurements
    assert json.loads(kept.model_dump_json()) == printed
    assert [one["name"] for one in printed["algorithms"]] == [
        "ring",
        "tree",
        "halving_doubling",
        "hierarchical",
        "library",
    ]
    assert printed["choices"][0]["from_bytes"] == 1024
    assert done.stderr == ""


def test_other_operations_are_added_and_printed_as_tables(tmp_path: Path) -> None:
    for op, name in (
        ("all_gather", "ring"),
        ("all_to_all", "pairwise"),
        ("reduce_scatter", "ring"),
        ("p2p", "library"),
    ):
        done = _run("--ranks", "2", "--op", op)
        assert done.exit_code == 0, done.exception
        assert name in done.stdout
        assert "fastest on 2 ranks" in done.stdout
    operations = [one.operation for one in read_measurements(tmp_path / "collectives.json").measurements]
    assert operations == ["all_gather", "all_to_all", "reduce_scatter", "p2p"]


def _ones(x: torch.Tensor) -> None:
    x.fill_(1.0)


def test_a_wrong_result_is_found() -> None:
    x = torch.zeros(4)

    def triple() -> None:
        x.mul_(3)

    one = Trial("lazy", lambda: None, x, x, lambda: torch.full((4,), 3.0))
    assert not one.is_right(_ones)
    assert Trial("right", triple, x, x, lambda: torch.full((4,), 3.0)).is_right(_ones)
    assert x.eq(0).all()


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for arguments in (("--op", "sum"), ("--sizes", "big"), ("--ranks", "1")):
        assert isinstance(_run(*arguments).exception, BadInput)
    assert not list(tmp_path.iterdir())


def test_a_foreign_file_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "collectives.json").write_text("mine")
    assert isinstance(_run("--ranks", "2").exception, BadInput)
    assert (tmp_path / "collectives.json").read_text() == "mine"


@pytest.mark.slow
def test_it_takes_part_where_a_launcher_started_it(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "stoker", "bench", "collectives", *_QUICK, "--op", "all_gather", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2  # printed once


def _begun(folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A long measurement, and its ranks."""
    command = [
        sys.executable,
        "-m",
        "stoker",
        "bench",
        "collectives",
        *_QUICK,
        "--ranks",
        "2",
        "--rounds",
        "100000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        family: list[Any] = psutil.Process(process.pid).children(recursive=True)
        ranks = [one for one in family if _threads(one) > 3]
        if len(ranks) >= 2:
            return process, family
        time.sleep(0.2)
    process.kill()
    raise AssertionError("no ranks were started")


def _threads(process: psutil.Process) -> int:
    try:
        return int(process.num_threads())
    except psutil.Error:
        return 0


@pytest.mark.slow
def test_it_ends_when_asked_to_and_leaves_nothing(tmp_path: Path) -> None:
    process, family = _begun(tmp_path)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in errors
    assert not psutil.wait_procs(family, timeout=20)[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_it(tmp_path: Path) -> None:
    process, family = _begun(tmp_path)
    rank = max(family, key=lambda one: one.pid)
    rank.kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank " in errors
    assert "Traceback" not in errors
    assert not psutil.wait_procs(family, timeout=20)[1]
