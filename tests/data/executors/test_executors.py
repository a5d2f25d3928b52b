"""The same jobs give the same results in the same order whatever computes them, and errors arrive as they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoker.data.executors import WorkerDied, executor_of
from stoker.data.executors.local import Local
from stoker.errors import BadInput, StokerError
from stoker.recipe import Data, Source

IN_RAY = """
import sys
from pathlib import Path
from stoker.data.executors import local
from stoker.data.prepare import prepare
from stoker.progress import Silent
from tests.data.small_corpus import folder_bytes, small_recipe

local.nursery = lambda _: None  # words are poison in a fresh Python alone
folder = Path(sys.argv[1])
common = ("data.document_seconds=1", "data.workers=2", "data.error_budget=1")
local = prepare(small_recipe(folder, *common), Silent())
ray = prepare(small_recipe(folder, *common, "data.executor=ray", "data.prepared=ray"), Silent())
assert ray.folder != local.folder
assert folder_bytes(ray.folder) == folder_bytes(local.folder)
print([entry["documents"] for entry in ray.manifest["funnel"] if entry.get("reason") == "poisoned"])
"""


def doubled(number: int) -> int:
    """Later jobs are done sooner."""
    time.sleep(0.02 * (number % 3 == 0))
    return 2 * number


def refused(number: int) -> int:
    if number == 3:
        raise BadInput("three is refused")
    return number


def fatal_while_there(file: Path) -> str:
    """Ends its process as long as the file is there."""
    if file.exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    return "done"


def asleep_while_there(file: Path) -> str:
    """Waits for what never comes, as long as the file is there."""
    while file.exists():
        time.sleep(0.5)
    return "done"


def spent(seconds: float) -> None:
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_jobs(workers: int) -> None:
    assert list(Local(workers).in_order(doubled, range(30))) == [2 * number for number in range(30)]


def test_no_jobs_need_no_worker() -> None:
    assert list(Local(None).in_order(doubled, [])) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_job_is_raised_behind_the_results_before_it(workers: int) -> None:
    results = Local(workers).in_order(refused, range(6))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(BadInput, match="three is refused"):
        next(results)


def test_a_job_over_which_a_worker_died_is_replaced_by_what_is_answered(tmp_path: Path) -> None:
    (tmp_path / "fatal").touch()
    told: list[tuple[str, int]] = []

    def answered(job: Path, death: WorkerDied, deaths: int) -> Path:
        told.append((death.how, deaths))
        return job if deaths < 2 else tmp_path / "another"

    assert list(Local(2).in_order(fatal_while_there, [tmp_path / "fatal"], answered)) == ["done"]
    assert told == [("was ended by SIGSEGV", 1), ("was ended by SIGSEGV", 2)]


def test_a_job_that_ends_every_worker_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    (tmp_path / "fatal").touch()
    with pytest.raises(StokerError, match=r"was ended by SIGSEGV, 3 times over the same piece of work"):
        list(Local(2).in_order(fatal_while_there, [tmp_path / "fatal", tmp_path / "another"]))


def test_a_worker_that_only_waits_is_ended_and_told_apart(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    told: list[str] = []

    def answered(job: Path, death: WorkerDied, _: int) -> Path:
        told.append(death.how)
        return tmp_path / "another"

    executor = Local(1, idle_seconds=3)
    assert list(executor.in_order(asleep_while_there, [tmp_path / "there"], answered)) == ["done"]
    assert told == ["did nothing for 3 seconds"]


def test_processor_seconds_of_workers_are_counted() -> None:
    executor = Local(2)
    list(executor.in_order(spent, [0.2, 0.3]))
    assert 0.5 <= executor.cpu_seconds < 5


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    data = Data(sources=(Source(name="a", paths=("a",)),), executor="ray")
    with pytest.raises(BadInput, match=r"pip install 'stoker\[ray\]'"):
        executor_of(data)


@pytest.mark.slow
def test_ray_gives_the_same_bytes_and_sets_the_same_documents_aside(tmp_path: Path) -> None:
    from tests.data.executors.poison import poisoned_workers
    from tests.data.small_corpus import write_text_files

    write_text_files(tmp_path / "text")
    with (tmp_path / "text" / "english.jsonl").open("a") as stream:
        stream.write('{"text": "an endless one"}\n{"text": "a segmentation fault"}\n')
    environment = {**os.environ, **poisoned_workers(tmp_path / "site"), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [sys.executable, "-c", IN_RAY, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[2]"
