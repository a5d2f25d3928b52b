"""Whole runs through the real command line: whatever happens to them, they end in the same place, by themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from stoker.record import SUPERVISOR, Record, samples_seen
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import command, stoker, write_job
from tests.preloaded import environment
from tests.verification.this_commit import commit_number, drawn

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_job(tmp_path_factory.mktemp("job"), recovery__compare_every=2)
    assert stoker("prepare", path).returncode == 0
    return path


def drill(recipe: Path, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    result = stoker("drill", recipe, *arguments, "--json", "--folder", folder, timeout=280)
    assert result.stdout, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["drills"]
    assert all(one["survived"] for one in found), json.dumps(found, indent=1)
    assert result.returncode == 0
    return found


def events(run: Path, rank: int = SUPERVISOR) -> list[dict[str, Any]]:
    return Record(run / "record").events(rank)


def test_a_run_survives_what_happens_to_its_processes(recipe: Path, tmp_path: Path) -> None:
    """Killed, failing, frozen and hanging ranks, two in each run; each is named."""
    pairs = [("kill@6:1", "hang@9:0"), ("error@5:0", "freeze@9:1")]
    given = [word for pair in pairs for word in ("--fault", "+".join(pair))]
    found = drill(recipe, tmp_path, "layout.dp_replicate=2", "recovery.copy_every=1", *given)
    for pair, one in zip(pairs, found, strict=True):
        assert one["blamed"] == [[fault, [int(fault[-1])]] for fault in pair]
        assert one["commands"] == 1
        assert one["restarts"] == 2
        assert one["detect_seconds"][0] < one["detect_seconds"][1]
    _, failure = [event for event in events(tmp_path / "drill-001") if event["event"] == "failure"]
    evidence = failure["detail"]
    assert "injection.py" in evidence["call_site"]
    assert evidence["arrived"] == [1]
    assert evidence["missing"] == [0]
    assert set(evidence["stacks"]) == {"0", "1"}


def test_a_run_survives_what_happens_to_its_state_and_surroundings(recipe: Path, tmp_path: Path) -> None:
    faults = ["corrupt_checkpoint@7:0", "disk@6:0", "memory@7:1", "network@7:1"]
    given = [word for fault in faults for word in ("--fault", fault)]
    saved = tmp_path / "saved"
    found = drill(recipe, tmp_path / "drills", "layout.dp_replicate=2", f"checkpoint.folder={saved}", *given)
    assert all(one["came"] == 1 and one["commands"] == 1 for one in found)
    runs = ["undisturbed", *(f"drill-{number:03d}" for number in range(1, 5))]
    assert sorted(path.name for path in saved.iterdir()) == sorted(f"drills-{run}" for run in runs)


def test_wrong_numbers_are_found_done_again_and_put_down_to_their_rank(recipe: Path, tmp_path: Path) -> None:
    faults = ["nan@5:1", "bitflip_weight@7:1", "bitflip_gradient@6:0"]
    given = [word for fault in faults for word in ("--fault", fault)]
    found = drill(recipe, tmp_path, "layout.dp_replicate=2", *given)
    assert all(one["came"] == 1 and one["restarts"] == 0 for one in found)
    for number, rank in ((2, 1), (3, 0)):
        (named,) = [e for e in events(tmp_path / f"drill-{number:03d}", 0) if e["event"] == "silent_corruption"]
        assert named["detail"]["ranks"] == [rank]


def test_a_run_survives_the_loss_of_its_supervisor_and_goes_on_after_that_of_its_command(
    recipe: Path, tmp_path: Path
) -> None:
    given = ["--fault", "kill_supervisor@6:0", "--fault", "kill_command@6:0", "--fault", "sigterm@6:0"]
    found = drill(recipe, tmp_path, "layout.dp_replicate=2", *given)
    assert [one["commands"] for one in found] == [1, 2, 2]


LAYOUTS = ["dp_replicate=2", "dp_shard=2", "tp=2", "pp=2", "cp=2", "dp_replicate=4"]


@pytest.mark.parametrize("which", [0, 1])
def test_drawn_kills_of_any_rank_at_any_instant(recipe: Path, tmp_path: Path, which: int) -> None:
    """Ten kills of each of two layouts, all drawn anew by every commit; `make drill` makes 300 of eight layouts."""
    number = commit_number()
    layout = drawn(LAYOUTS, 2)[which]
    copies = f"recovery.copy_every={(number + which) % 2}"
    given = [copies, "recovery.same_failure=12", "--draw=10", "--per-run=10", "--seed", str(number % 10**6)]
    (one,) = drill(recipe, tmp_path, f"layout.{layout}", *given)
    assert one["came"] >= 3


def test_one_process_is_watched_over_too(recipe: Path, tmp_path: Path) -> None:
    (one,) = drill(recipe, tmp_path, "--fault", "kill@6:0")
    assert one["restarts"] == 1


def test_the_same_failure_again_and_again_is_a_finding_and_no_loop(recipe: Path, tmp_path: Path) -> None:
    faults = "+".join(f"error@7:1:attempt={attempt}" for attempt in range(1, 6))
    given = ["layout.dp_replicate=2", "--fault", faults, "--json", "--folder", str(tmp_path)]
    result = stoker("drill", recipe, *given)
    assert result.returncode == 1
    (one,) = json.loads(result.stdout)["drills"]
    assert not one["finished"]
    assert "The run gave up: it failed in the same way 3 times after step 6" in one["said"]
    happened = [event["event"] for event in events(tmp_path / "drill-001")]
    assert [event for event in happened if event not in ("fault", "ranks_ended")] == [
        "failure",
        "failure",
        "gave_up",
    ]


def test_a_kill_of_everything_goes_on_from_memory_when_the_command_is_given_again(
    recipe: Path, tmp_path: Path
) -> None:
    """No checkpoint was written: what the next command goes on from are the copies that the killed one left."""
    run = RunDirectory(tmp_path / "run")
    arguments = ["layout.dp_replicate=2", "recovery.copy_every=1", "checkpoint.every=1000", f"run={run.path}"]
    long = [*arguments, "training.steps=2000", "training.schedule.name=constant", "evaluation.every=0"]
    process = subprocess.Popen(
        command("train", recipe, *long), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        deadline = time.monotonic() + 120
        while not run.record.exists() or Record(run.record).steps().height < 5:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        ranks = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not psutil.wait_procs(ranks, timeout=20)[1]
    finally:
        process.kill()
    assert not list(run.checkpoints.glob("step-*"))
    done = Record(run.record).steps().height
    result = stoker(
        "train",
        recipe,
        *arguments,
        f"training.steps={done + 3}",
        "training.schedule.name=constant",
        "evaluation.every=0",
    )
    assert result.returncode == 0, result.stderr
    resumed = [event for event in Record(run.record).events() if event["event"] == "resumed"]
    assert resumed[0]["step"] >= done - 2
    assert samples_seen(Record(run.record)).exact


def test_two_supervisors_of_one_run_are_refused(recipe: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.held("train"):
        result = stoker("train", recipe, f"run={run.path}")
    assert result.returncode == 2
    assert f"process {os.getpid()}" in result.stderr


def test_what_cannot_be_is_refused_before_anything_runs(recipe: Path, tmp_path: Path) -> None:
    for fault, said in [("explode@3", "there is no fault 'explode'"), ("kill@99", "the run has 12 steps")]:
        result = stoker("drill", recipe, "--fault", fault, "--folder", tmp_path)
        assert result.returncode == 2
        assert said in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "policy"), [(signal.SIGTERM, "requeue"), (signal.SIGUSR1, "stop")])
def test_a_run_that_is_to_be_requeued_saves_and_ends_with_75(
    recipe: Path, tmp_path: Path, number: signal.Signals, policy: str
) -> None:
    run = RunDirectory(tmp_path / "run")
    arguments = [f"run={run.path}", f"recovery.on_sigterm={policy}", "training.steps=100000", "evaluation.every=0"]
    process = subprocess.Popen(
        command("train", recipe, *arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    try:
        deadline = time.monotonic() + 120
        while not run.record.exists() or Record(run.record).steps().height < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(timeout=60) == 75
    finally:
        process.kill()
    assert list(run.checkpoints.glob("step-*"))


def test_every_kind_of_fault_is_listed_for_people_and_machines() -> None:
    result = stoker("drill", "--list", "--json")
    kinds = json.loads(result.stdout)
    wanted = {"kill", "freeze", "slow_rank", "memory", "disk", "corrupt_checkpoint", "bitflip_gradient", "sigterm"}
    assert wanted <= set(kinds)
    listed = stoker("drill", "--list").stdout
    assert all(f"\n{kind} " in listed for kind in kinds)
