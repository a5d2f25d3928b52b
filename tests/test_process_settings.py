"""Whoever looks at the processes of a machine sees which of them is which rank."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.small_job import command, write_job
from tests.preloaded import environment

_SHOWN = """
from pathlib import Path
from stoker.process_settings import call_process, call_rank
for rank in (0, 999, 1000, 1234567):
    call_rank(rank)
    print(Path("/proc/self/comm").read_text(), end="")
call_process("a name that is too long")
print(Path("/proc/self/comm").read_text(), end="")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names of processes are set on Linux")
def test_the_number_of_a_rank_is_whole_in_what_the_kernel_shows() -> None:
    shown = subprocess.run([sys.executable, "-c", _SHOWN], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.splitlines() == [
        "stoker rank 0", "stoker rank 999", "stoker r1000", "stoker r1234567", "stoker a name t",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of processes are set on Linux")
def test_each_process_of_a_run_is_shown_by_what_it_is(tmp_path: Path) -> None:
    recipe = write_job(
        tmp_path, training__steps=100_000, evaluation__every=0, layout={"dp_replicate": 2}, alerts={"enabled": True}
    )
    names: set[str] = set()
    with subprocess.Popen(command("train", recipe), env=environment(), stdout=subprocess.DEVNULL) as process:
        try:
            while not names >= {"stoker superv.", "stoker rank 0", "stoker rank 1", "stoker monitor"}:
                assert process.poll() is None, names
                time.sleep(0.05)
                names |= {_shown(one.pid) for one in psutil.Process(process.pid).children(recursive=True)}
        finally:
            process.terminate()
            process.wait(timeout=120)


def _shown(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:  # it has ended
        return ""
