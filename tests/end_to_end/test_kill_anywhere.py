"""Kill it at any instant; run it again; it ends in the same place."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from stoker.checkpoint import latest, read_weights
from stoker.counter_random import draw_u64, key_of
from stoker.record import Record, samples_seen
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import command, stoker, write_job
from tests.preloaded import environment

pytestmark = pytest.mark.slow
KILLS = 10


def _weights(run: RunDirectory) -> dict[str, str]:
    checkpoint = latest(run.checkpoints)
    assert checkpoint is not None
    assert checkpoint.name == "step-00000012"
    return {
        name: hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in read_weights(checkpoint).items()
    }


def _corpus(folder: Path) -> dict[str, str]:
    prepared = [path for path in (folder / "prepared").iterdir() if not path.name.startswith(".")]
    (corpus,) = [path for path in prepared if path.is_dir()]
    return {
        str(path.relative_to(corpus)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(corpus.rglob("*"))
        if path.is_file() and path.name != "timings.json"
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A finished run and how long it took, in seconds."""
    folder = tmp_path_factory.mktemp("undisturbed")
    recipe = write_job(folder, training__optimizer={"name": "muon"})
    begun = time.monotonic()
    result = stoker("run", recipe)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder, time.monotonic() - begun


def test_kill_9_at_ten_drawn_moments_ends_bit_identical(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    """One run is killed ten times, at moments from start-up through preparation, training and saving."""
    reference, seconds = undisturbed
    recipe = write_job(tmp_path, training__optimizer={"name": "muon"})
    moments = draw_u64(key_of(11, "kill"), np.arange(KILLS, dtype=np.uint64)) / 2.0**64
    killed = 0
    for moment in sorted(moments):
        process = subprocess.Popen(
            command("run", recipe),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
        try:
            process.wait(timeout=0.5 + moment * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
    result = stoker("run", recipe)
    assert result.returncode == 0, result.stdout + result.stderr
    assert killed >= 3, "the drawn moments hardly met the run"
    assert _corpus(tmp_path) == _corpus(reference)
    run = RunDirectory(tmp_path / "runs" / "small")
    assert _weights(run) == _weights(RunDirectory(reference / "runs" / "small"))
    report = samples_seen(Record(run.record))
    assert report.exact, report
    assert not list(run.checkpoints.glob(".*")), "a killed save was not cleaned up"


def test_sigterm_saves_and_the_same_command_goes_on(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    reference, _ = undisturbed
    recipe = write_job(tmp_path, training__optimizer={"name": "muon"}, checkpoint__every=1000)
    process = subprocess.Popen(
        command("train", recipe), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    )
    record = RunDirectory(tmp_path / "runs" / "small").record
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if record.exists() and Record(record).steps().height >= 1:
            process.send_signal(signal.SIGTERM)
            break
        time.sleep(0.02)
    _, error = process.communicate(timeout=120)
    assert process.returncode in (143, 0), error
    result = stoker("train", recipe)
    assert result.returncode == 0, result.stdout + result.stderr
    assert _weights(RunDirectory(tmp_path / "runs" / "small")) == _weights(
        RunDirectory(reference / "runs" / "small")
    )
