"""What every executor does, and what it makes of a worker that dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from stoker.errors import StokerError

Job = TypeVar("Job")
Result = TypeVar("Result")
_MOST_DEATHS = 3


class WorkerDied(Exception):
    """A worker process ended in the middle of a job. `how` says by what, as in `was ended by SIGSEGV`."""

    def __init__(self, how: str, lacked_memory: int | None = None) -> None:
        super().__init__(how)
        self.how = how
        self.lacked_memory = lacked_memory
        """Bytes that it might take, where these were too few; None where it ended of something else."""


Again = Callable[[Any, WorkerDied, int], Any]
"""`again(job, death, deaths)`: what to compute in a new worker instead of a job over which a worker died, for the
first time (`deaths` is 1) or once more. Raises `StokerError` where that is of no use."""


def try_again(job: Job, death: WorkerDied, deaths: int) -> Job:
    """The same job, some times: a machine short of memory ends processes that did nothing wrong."""
    if deaths >= _MOST_DEATHS:
        raise StokerError(
            f"a worker process of the preparation {death.how}, {deaths} times over the same piece of work; the "
            "machine may be short of memory. Run the same command again (what was finished is kept), or set "
            "data.workers lower"
        ) from None
    return job


class Executor(Protocol):
    """Computes jobs somewhere."""

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the jobs took so far outside of this process."""

    def in_order(
        self,
        function: Callable[[Job], Result],
        jobs: Iterable[Job],
        again: Again = try_again,
        most: int | None = None,
    ) -> Iterator[Result]:
        """`function(job)` for each job, in the order of the jobs, on at most `most` workers at a time.

        `function` must be importable by name; jobs and results must be picklable. A `StokerError` of a job is
        raised here; a worker that dies is answered with what `again` makes of the job.
        """
