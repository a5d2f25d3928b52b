"""Runs of several ranks through the real command line: start, failure, resume at another size."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from stoker.checkpoint import latest, read_weights
from stoker.record import Record, samples_seen
from stoker.run_directory import RunDirectory
from tests.changed_imports import python_path_that_changes
from tests.end_to_end.small_job import command, stoker, write_job
from tests.preloaded import environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe and its prepared corpus; tests copy it."""
    folder = tmp_path_factory.mktemp("prepared")
    recipe = write_job(folder)
    result = stoker("prepare", recipe)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def job(prepared: Path, tmp_path: Path) -> Path:
    """A recipe of its own with the corpus already prepared."""
    shutil.copytree(prepared, tmp_path / "job")
    return tmp_path / "job" / "recipe.yaml"


def _run(recipe: Path) -> RunDirectory:
    return RunDirectory(recipe.parent / "runs" / "small")


def _weights(recipe: Path) -> dict[str, torch.Tensor]:
    checkpoint = latest(_run(recipe).checkpoints)
    assert checkpoint is not None
    return read_weights(checkpoint)


def test_ranks_train_what_one_process_trains(job: Path, tmp_path: Path) -> None:
    shutil.copytree(job.parent, tmp_path / "alone")
    alone = tmp_path / "alone" / "recipe.yaml"
    assert stoker("train", alone).returncode == 0
    result = stoker("train", job, "layout.dp_replicate=2", "layout.dp_shard=2")
    assert result.returncode == 0, result.stderr
    expected = Record(_run(alone).record).steps()["loss"].to_list()
    assert Record(_run(job).record).steps()["loss"].to_list() == pytest.approx(expected, rel=1e-5)
    for name, tensor in _weights(alone).items():
        torch.testing.assert_close(_weights(job)[name], tensor, rtol=1e-3, atol=1e-5)


def test_resuming_on_other_numbers_of_ranks_loses_and_repeats_no_sample(job: Path) -> None:
    for layout, steps in (("dp_replicate=2", 4), ("dp_shard=4", 8), ("dp_shard=1", 12)):
        result = stoker(
            "train", job, f"layout.{layout}", f"training.steps={steps}", "training.schedule.name=constant"
        )
        assert result.returncode == 0, result.stderr
    record = Record(_run(job).record)
    assert record.steps()["ranks"].to_list() == [2] * 4 + [4] * 4 + [1] * 4
    assert samples_seen(record).exact


def test_torchrun_starts_the_ranks_as_well(job: Path) -> None:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *("-m", "stoker", "train", str(job), "layout.dp_shard=2"),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    assert Record(_run(job).record).steps().height == 12


_RANK_1_FAILS_AS_IT_STARTS = """
choose = module.choose_device
def choose_device(name, local_rank):
    if local_rank == 1:
        raise RuntimeError("the device of this rank fell off the bus")
    return choose(name, local_rank)
module.choose_device = choose_device
"""


def test_a_rank_that_fails_while_starting_ends_the_run_in_seconds_with_its_error(job: Path, tmp_path: Path) -> None:
    assert stoker("prepare", job).returncode == 0
    paths = python_path_that_changes("stoker.training.rank", _RANK_1_FAILS_AS_IT_STARTS, tmp_path / "changed")
    began = time.monotonic()
    result = subprocess.run(
        command("train", job, "layout.dp_replicate=2", "layout.pp=2"),
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment(), "PYTHONPATH": paths},
    )
    assert result.returncode == 1, result.stderr
    assert "rank 1 failed: RuntimeError: the device of this rank fell off the bus" in result.stderr
    assert "Traceback" not in result.stderr
    assert time.monotonic() - began < 90  # four ranks import torch first; collectives would wait 600


def test_ranks_end_when_their_launcher_is_killed(job: Path) -> None:
    process = subprocess.Popen(
        command("train", job, "layout.dp_replicate=2", "training.steps=100000", "evaluation.every=0"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    _wait_for_steps(job, 1, process)
    ranks = _ranks_of(process.pid)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(ranks, timeout=20)
    assert not alive
    assert stoker("train", job, "layout.dp_replicate=2", "training.steps=4").returncode in (0, 2)


def test_two_runs_at_once_on_one_machine_do_not_meet(job: Path, tmp_path: Path) -> None:
    shutil.copytree(job.parent, tmp_path / "other")
    recipes = [job, tmp_path / "other" / "recipe.yaml"]
    runs = [
        subprocess.Popen(
            command("train", recipe, "layout.dp_replicate=2", f"seed={seed}"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for seed, recipe in enumerate(recipes)
    ]
    for run in runs:
        _, error = run.communicate(timeout=240)
        assert run.returncode == 0, error
    first, second = (Record(_run(recipe).record).steps()["loss"].to_list() for recipe in recipes)
    assert len(first) == len(second) == 12
    assert first != second


def test_sigterm_reaches_the_ranks_and_saves(job: Path) -> None:
    process = subprocess.Popen(
        command(
            "train",
            job,
            "layout.dp_replicate=2",
            "training.steps=100000",
            "evaluation.every=0",
            "checkpoint.every=50000",
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        _wait_for_steps(job, 2, process)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, error
    checkpoint = latest(_run(job).checkpoints)
    assert checkpoint is not None
    assert int(checkpoint.name.removeprefix("step-")) == Record(_run(job).record).steps()["step"].to_list()[-1]


@pytest.mark.parametrize(
    ("number", "seconds"), [(signal.SIGINT, 0.3), (signal.SIGTERM, 0.0), (signal.SIGTERM, 1.5)]
)
def test_a_signal_to_all_processes_while_ranks_start_ends_them_cleanly(
    job: Path, number: signal.Signals, seconds: float
) -> None:
    process = subprocess.Popen(
        command("run", job, "layout.dp_replicate=2", "training.steps=100000", "evaluation.every=0"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        said = ""
        while "global batch" not in said:  # the last line before the ranks are started
            said = process.stderr.readline()
            assert said, "the run ended before it was to be disturbed"
        time.sleep(seconds)
        started = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, number)
        error = process.stderr.read()
        assert process.wait(timeout=60) == 143, error
    finally:
        process.kill()
    assert "Traceback" not in error
    assert error.count("stoker: ") == 1
    assert f"The same command goes on from there: stoker run {job}" in error
    gone, alive = psutil.wait_procs(started, timeout=10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive), (gone, alive)


def test_more_ranks_than_devices_or_a_wrong_world_size_is_refused_before_training(job: Path) -> None:
    result = subprocess.run(
        command("train", job, "layout.dp_replicate=2"),
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment(), "WORLD_SIZE": "3", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
    )
    assert result.returncode == 2
    assert "2 processes" in result.stderr
    assert "3 were started" in result.stderr


def _wait_for_steps(recipe: Path, steps: int, process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it was to be disturbed"
        if _run(recipe).record.exists() and Record(_run(recipe).record).steps().height >= steps:
            return
        time.sleep(0.05)
    pytest.fail(f"no {steps} steps within two minutes")


def _ranks_of(launcher: int) -> list[psutil.Process]:
    """The rank processes: grandchildren of the command, forked by its supervisor."""
    found = []
    for child in psutil.Process(launcher).children(recursive=True):
        if child.ppid() != launcher and child.ppid() != os.getpid():
            found.append(child)
    return sorted(found, key=lambda rank: rank.create_time())
