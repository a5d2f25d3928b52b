"""Starts the ranks that are profiled, as processes of this machine, or takes part where a launcher started them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.errors import StokerError
from stoker.parallel.local_ranks import run_local_ranks
from stoker.profiling.recording import Recorded, Recording, Steps, set_up_environment
from stoker.training.rank import Job, train_rank
from stoker.training.signals import StopRequest

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Profiled:
    """What is to be profiled; the same on every rank."""

    job: Job
    steps: Steps
    folder: Path
    """Where each rank leaves its trace."""


def record_as_rank(work: Profiled, rank: int, local_rank: int, local_ranks: int, store: Any, say: Say) -> None:
    """Train as one rank up to the last step that is wanted, and leave a trace. Collective over all ranks."""
    recording = Recording(work.steps, work.folder, say)
    try:
        train_rank(
            work.job,
            rank,
            local_rank,
            local_ranks,
            store,
            StopRequest(),
            lambda message: None,
            when_built=recording.attach,
        )
    except Recorded:
        return
    raise StokerError(
        f"rank {rank}: the run ended before step {work.steps.until} was profiled: it went back, or stopped"
    )


def record_here(work: Profiled, say: Say) -> None:
    """Have every rank of the job's layout leave its trace. Raises the error of the rank that failed first."""
    set_up_environment()
    recipe = work.job.recipe
    run_local_ranks(_record_as_rank, work, recipe.layout.world_size, recipe.training.timeout_seconds, say)


def _record_as_rank(work: Profiled, rank: int, store: TCPStore, say: Say) -> None:
    ranks = work.job.recipe.layout.world_size
    record_as_rank(work, rank, rank, ranks, store if ranks > 1 else None, say)
