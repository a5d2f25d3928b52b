"""Memory that runs out is told with what was expected, what was seen, and what would fit."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stoker.errors import OutOfMemory, StokerError
from stoker.training.out_of_memory import as_seen, oom_kills, ran_out
from tests.end_to_end.small_job import stoker, write_job
from tests.preloaded import environment
from tests.verification.this_commit import drawn

_TRAIN_WITH_LITTLE_MORE = """
import re, resource, sys
from pathlib import Path
from stoker.cli.arguments import load
from stoker.errors import OutOfMemory, StokerError
from stoker.progress import Silent
from stoker.recovery import standby, train

loaded = load(Path(sys.argv[1]), sys.argv[3:])
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
limit = used + int(sys.argv[2]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    with standby(forked=True) as ready:
        train(loaded, loaded.run, Silent(), ready)
except OutOfMemory as error:
    print(error)
else:
    print("trained")
"""


def test_it_is_recognised_by_what_torch_and_python_raise() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**46)
    assert ran_out(refused.value)
    assert ran_out(MemoryError())
    assert ran_out(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"))
    assert not ran_out(RuntimeError("shapes cannot be multiplied"))
    assert not ran_out(OSError(28, "No space left on device"))


def test_what_was_seen_has_figures() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
    seen = as_seen(error, 3, torch.device("cpu"))
    assert str(seen).startswith("rank 3 ran out of memory when it asked for 2.00 GiB; it had ")
    assert seen.held_bytes == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_rank_that_hears_of_it_from_another_does_not_take_it_for_its_own() -> None:
    """As when a save cannot have its buffers on one rank, and all stop saving."""
    error = StokerError("rank 1 failed: OSError: [Errno 12] Cannot allocate memory")
    assert ran_out(error)
    assert isinstance(as_seen(error, 1, torch.device("cpu")), OutOfMemory)
    heard = as_seen(error, 0, torch.device("cpu"))
    assert not isinstance(heard, StokerError)
    assert str(heard) == "rank 1 ran out of memory"


def test_linux_counts_what_it_kills() -> None:
    assert oom_kills() >= 0


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    batch = {"training__global_batch_size": 64, "training__micro_batch_size": 64}
    path = write_job(tmp_path_factory.mktemp("job"), **batch)
    assert stoker("prepare", path).returncode == 0
    return path


def train_with(job: Path, mebibytes: int, *overrides: str) -> str:
    """Train in a process that may have so much more than it had with everything loaded; what it says in the end."""
    result = subprocess.run(
        [sys.executable, "-c", _TRAIN_WITH_LITTLE_MORE, job, str(mebibytes), *overrides],
        capture_output=True,
        text=True,
        timeout=240,
        env={**environment(), "MALLOC_ARENA_MAX": "1"},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_run_that_dies_for_memory_says_what_would_fit_and_that_fits(job: Path) -> None:
    wide = [
        *("model.hidden_size=128", "model.layers=6", "model.ffn_hidden_size=1024", "training.steps=3"),
        *("training.sequence_length=256", "evaluation.every=0", "training.threads=1"),
    ]
    said = train_with(job, 900, *wide)
    assert re.search(
        r"rank 0 ran out of memory when it asked for \d+ bytes; it had [\d.]+ [MG]iB resident", said
    ), said
    assert re.search(r"the plan expected [\d.]+ [MG]iB at most on a rank: parameters .*activations [\d.]+", said), (
        said
    )
    remedies = re.findall(r"this would fit: (.*) \(([\d.]+ [MG]iB), (as fast|about \d+% (?:slower|faster))\)", said)
    assert len(remedies) == 3, said
    for overrides, _, _ in drawn(remedies, 1):  # another one for other commits
        assert train_with(job, 900, *wide, *overrides.split()) == "trained\n", overrides


def test_a_rank_that_runs_out_tells_the_launcher_what_it_held() -> None:
    from stoker.recovery.processes import as_failure
    from stoker.run_directory import RunDirectory

    seen = OutOfMemory("rank 1 ran out of memory")
    seen.held_bytes = 7
    failure = as_failure(seen, 1, RunDirectory(Path("nowhere")))
    assert failure["error"] is OutOfMemory
    assert failure["held_bytes"] == 7
