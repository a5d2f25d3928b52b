"""A preparation that is killed anywhere, or whose disk is full, ends in the same bytes when it is run again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoker.data.prepare import prepare
from stoker.durable_files import PARTIAL_MARK
from stoker.progress import Silent
from tests.data.small_corpus import folder_bytes, small_recipe, write_text_files

pytestmark = pytest.mark.slow

PREPARE_AND_DIE = """
import mmap, os, signal, struct, sys
from pathlib import Path
moment, before = int(sys.argv[2]), sys.argv[3] == "before"
# Shared with the worker, which is forked: it reads while this process waits, so that one of them counts at a time.
renames, owner = mmap.mmap(-1, 8), os.getpid()

def die():
    os.kill(owner, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

def dying(rename):
    def counted(*arguments):
        if loaded.prepared_folder not in Path(arguments[-1]).parents:
            return rename(*arguments)  # of numba's cache
        (number,) = struct.unpack("q", renames[:])
        renames[:] = struct.pack("q", number + 1)
        if before and number + 1 == moment:
            die()
        rename(*arguments)
        if number + 1 == moment:
            die()
    return counted

from stoker.data.prepare import prepare
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
loaded = load_recipe(Path(sys.argv[1]), sys.argv[4:])
# Everything that appears on disk appears by a rename: these are all the moments that differ.
os.replace, os.rename = dying(os.replace), dying(os.rename)
prepare(loaded, Silent())
"""
RENAMES = 39
"""Of a whole preparation with one worker; nine are the worker's."""
RENAMES_HERE = 30
"""Of this process alone, where workers are Ray's."""
START_WORKERS_AND_DIE = """
import os, re, signal, sys, threading, time
from pathlib import Path
from stoker.data.executors.local import Local

# One call that keeps Python's other threads waiting, and never ends in the time of a test.
job = {"busy": (re.compile(r"(a+)+$").match, "a" * 60 + "b"), "idle": (time.sleep, 600.0)}[sys.argv[1]]
threading.Thread(target=lambda: list(Local(2).in_order(job[0], [job[1]] * 4)), daemon=True).start()
children = []
while len(children) < 2:
    time.sleep(0.05)
    tasks = list(Path("/proc/self/task").iterdir())
    children = [pid for task in tasks for pid in (task / "children").read_text().split()]
time.sleep(float(sys.argv[2]))
print(*children, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
PREPARE_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from stoker.data.prepare import prepare
from stoker.errors import StokerError
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    prepare(load_recipe(Path(sys.argv[1])), Silent())
except StokerError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def moments(count: int, renames: int = RENAMES) -> list[tuple[int, str]]:
    """Moments of a whole preparation, drawn evenly."""
    draw = random.Random(11)
    drawn = [round((index + draw.random()) * renames / count) or 1 for index in range(count)]
    return [(moment, draw.choice(["before", "after"])) for moment in drawn]


def assert_killed_and_resumed(folder: Path, moment: int, when: str, *overrides: str) -> None:
    for name in ("whole", "killed"):
        write_text_files(folder / name / "text")
    whole = prepare(small_recipe(folder / "whole"), Silent())
    loaded = small_recipe(folder / "killed")
    finished = loaded.prepared_folder / whole.folder.name
    died = run(PREPARE_AND_DIE, loaded.path, moment, when, *overrides)
    assert died.returncode == -9, died.stderr
    if finished.exists():  # then it is complete
        assert folder_bytes(finished) == folder_bytes(whole.folder)
    resumed = prepare(loaded, Silent())
    assert resumed.folder == finished
    assert folder_bytes(resumed.folder) == folder_bytes(whole.folder)
    assert not [path for path in loaded.prepared_folder.rglob("*") if PARTIAL_MARK in path.name]
    assert not list(loaded.prepared_folder.glob(".work-*"))


@pytest.mark.parametrize(("moment", "when"), moments(5))
def test_a_kill_at_a_drawn_moment_changes_no_byte(tmp_path: Path, moment: int, when: str) -> None:
    assert_killed_and_resumed(tmp_path, moment, when)


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("moment", range(1, RENAMES + 1))
def test_a_kill_at_any_moment_changes_no_byte(tmp_path: Path, moment: int, when: str) -> None:
    assert_killed_and_resumed(tmp_path, moment, when)


@pytest.mark.thorough
def test_there_are_no_other_moments(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    assert run(PREPARE_AND_DIE, small_recipe(tmp_path).path, RENAMES + 1, "before").returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("moment", "when"), moments(20, RENAMES_HERE))
def test_a_kill_while_ray_has_the_work_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int, when: str
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert_killed_and_resumed(tmp_path, moment, when, "data.executor=ray", "data.workers=2")


@pytest.mark.parametrize(("job", "seconds"), [("idle", 0), ("idle", 2), ("busy", 0), ("busy", 2)])
def test_workers_end_with_a_parent_that_is_killed(job: str, seconds: float) -> None:
    died = run(START_WORKERS_AND_DIE, job, seconds)
    assert died.returncode == -9
    workers = died.stdout.split()
    assert len(workers) == 2
    deadline = time.monotonic() + 10  # seconds of them are for starting, on a busy machine
    while alive := [worker for worker in workers if _is_running(worker)]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.05)


def _is_running(process: str) -> bool:
    try:
        return (Path("/proc") / process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_stages_that_were_finished_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text_files(tmp_path / "text")
    loaded = small_recipe(tmp_path)
    died = run(PREPARE_AND_DIE, loaded.path, 12, "after")  # after reading, selecting and the tokenizer
    assert died.returncode == -9
    (work,) = loaded.prepared_folder.glob(".work-*")
    assert (work / "selection").is_file()
    for step in ("read_and_clean.read_part", "select.near_duplicates", "tokenise.train_tokenizer"):
        monkeypatch.setattr(f"stoker.data.stages.{step}", lambda *_: pytest.fail("a finished stage is done again"))
    prepare(loaded, Silent())


@pytest.mark.parametrize("limit", [3000, 9000])
def test_a_full_disk_is_one_clear_error_and_a_second_run_finishes(tmp_path: Path, limit: int) -> None:
    for name in ("whole", "full"):
        write_text_files(tmp_path / name / "text")
    whole = prepare(small_recipe(tmp_path / "whole"), Silent())
    loaded = small_recipe(tmp_path / "full")
    refused = run(PREPARE_ON_A_FULL_DISK, loaded.path, limit)
    assert refused.returncode == 1, refused.stderr
    assert "could not write" in refused.stdout
    assert "Traceback" not in refused.stderr
    assert not [path for path in loaded.prepared_folder.rglob("*") if PARTIAL_MARK in path.name]
    assert folder_bytes(prepare(loaded, Silent()).folder) == folder_bytes(whole.folder)
