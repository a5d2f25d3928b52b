"""Forked workers: they share what was imported and nothing else, and none outlives who asked for it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stoker.errors import StokerError
from tests.data.executors.test_executors import fatal_while_there

_BEGIN = """
import fcntl, os, sys, threading, time
from stoker.data.executors import local
from stoker.data.executors.local import Local
from stoker.data.executors.nursery import nursery
from stoker.data.executors.worker import serve
from tests.data.executors import jobs_of_nursery as jobs

"""


def told(program: str, *arguments: object) -> list[str]:
    """What a fresh Python of one thread prints."""
    command = [sys.executable, "-c", _BEGIN + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_workers_are_forked_with_all_that_was_imported() -> None:
    program = """
jobs.MARK = "imported"
executor = Local(2)
print(*executor.in_order(jobs.mark, range(3)), os.getpid() not in executor.in_order(jobs.process, range(2)))
print(*executor.in_order(jobs.variable, ["OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"]))
"""
    assert told(program) == ["imported"] * 3 + ["True", "1", "false"]


def test_a_process_of_several_threads_is_not_forked() -> None:
    program = """
jobs.MARK = "imported"
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print(nursery(serve), *Local(1).in_order(jobs.mark, range(2)))
"""
    assert told(program) == ["None", "fresh", "fresh"]


def test_a_worker_that_dies_is_told_apart_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.touch()
    program = """
from pathlib import Path
def again(job, death, deaths):
    print(death.how.replace(" ", "_"), deaths)
    job.unlink()
    return job
print(*Local(2).in_order(jobs.fatal_while_there, [Path(sys.argv[1])], again))
"""
    assert told(program, file) == ["was_ended_by_SIGSEGV", "1", "done"]
    assert fatal_while_there(file) == "done"


def test_an_error_of_one_worker_is_told_while_others_are_at_work() -> None:
    """They are ended from one thread while another reads their answers; both wait for the same process."""
    program = """
for _ in range(8):
    try: list(executor.in_order(jobs.refused_or_asleep, range(4)))
    except jobs.BadInput as error: print(error)
"""
    assert told("executor = Local(4)" + program) == ["refused"] * 8


def test_a_lock_of_the_parent_is_no_lock_of_its_workers(tmp_path: Path) -> None:
    """A worker that still ends while the same command runs again must not keep it out."""
    program = """
held = open(sys.argv[1], "w")
fcntl.flock(held, fcntl.LOCK_EX)
executor = Local(1)
next(waiting := executor.in_order(jobs.mark, range(2)))
held.close()
with open(sys.argv[1], "w") as again:
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("free")
"""
    assert told(program, tmp_path / "lock") == ["free"]


def test_what_waits_to_be_printed_is_printed_once() -> None:
    program = """
sys.stdout.write("waiting ")
list(Local(1).in_order(jobs.printed, ["loudly"]))
"""
    assert told(program) == ["waiting"]


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "print('end', flush=True)"])
def test_no_worker_outlives_its_parent(how: str) -> None:
    program = f"""
executor = Local(2)
running = executor.in_order(jobs.process_then_sleep, [0, 3600, 3600])
print(next(running), flush=True)
print(*(one.pid for one in __import__("psutil").Process().children(recursive=True)), flush=True)
{how}
os._exit(0)
"""
    command = [sys.executable, "-c", _BEGIN + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    pids = [int(word) for word in done.stdout.split() if word.isdecimal()]
    assert len(set(pids)) >= 3, done.stderr  # two workers and the nursery
    for _ in range(200):
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in set(pids)):
            break
        time.sleep(0.1)
    else:
        pytest.fail("workers live on")


def test_a_nursery_that_was_ended_is_named() -> None:
    program = """
import psutil
executor = Local(1)
psutil.Process().children()[0].kill()
try: list(executor.in_order(jobs.mark, range(2)))
except jobs.StokerError as error: print(error)
"""
    assert "starts the workers" in " ".join(told(program))
    assert issubclass(StokerError, Exception)


def test_a_nursery_ends_with_what_it_was_made_for() -> None:
    program = """
import psutil
executor = Local(1)
list(executor.in_order(jobs.mark, range(2)))
before = len(psutil.Process().children(recursive=True))
del executor
print(before, len(psutil.Process().children(recursive=True)))
"""
    assert told(program) == ["1", "0"]
