"""Lets a generator write what is missing, keeping each row as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.data.synthetic.jobs import Author, Generator, Prompt, Sampling, held_journal, jobs_of, row_of
from stoker.errors import BadInput
from stoker.plural import counted
from stoker.progress import Progress


@dataclass(frozen=True, slots=True)
class Written:
    """What was done."""

    rows: int
    """In the output."""
    wanted: int
    new: int
    """Written in this run; the others were there before."""
    tokens: int
    """Of the new rows."""
    stopped: str | None
    """Why rows are missing; None where none is."""


class OutOfBudget(Exception):
    """No more may be asked for; what there is so far is kept."""


def synthesize(
    prompts: Sequence[Prompt],
    sampling: Sampling,
    author: Author,
    generator: Generator,
    output: Path,
    progress: Progress,
    with_prompt: bool = False,
) -> Written:
    """Write a row for each prompt, temperature and sample to `output` (JSON lines, in that order).

    Killed and run again it asks for what is missing; so it does where the output is there with fewer rows. Raises
    `BadInput` where the output has rows of other jobs, and what the generator raises, with all rows so far kept.
    """
    jobs = jobs_of(prompts, sampling, author)
    with held_journal(output) as journal:
        if others := len(journal.rows.keys() - {job.identifier for job in jobs}):
            raise BadInput(
                f"{output} has {counted(others, 'rows')} that these prompts and settings do not ask for; name "
                "another --output, or move it away"
            )
        missing = journal.missing(jobs)
        new, tokens, stopped = 0, 0, None
        with progress.task("write text", len(missing), "rows") as task:
            try:
                for job, answer in generator.answers(missing) if missing else ():
                    if job.identifier in journal.rows:
                        continue
                    journal.add(row_of(job, answer, sampling, author, with_prompt))
                    new, tokens = new + 1, tokens + answer.tokens
                    task.advance()
            except OutOfBudget as reason:
                stopped = str(reason)
        return Written(journal.publish(jobs), len(jobs), new, tokens, stopped)
