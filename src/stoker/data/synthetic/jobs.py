"""What is asked for: prompts, how often and at which temperatures, and the rows that come of it.

Every row says how it came to be: the model and its digest, prompt, temperature, seed and generation. Its
identifier is computed from these, so a row that is there already is never asked for again, and the ledger's
`identifier` (with `id_field: id`) leads back to all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stoker.data.synthetic.json_lines import json_line, read_lines
from stoker.durable_files import explained_disk_errors, hold, write_bytes
from stoker.errors import BadInput


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to be continued or answered."""

    identifier: str
    text: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How text is drawn."""

    temperatures: tuple[float, ...] = (0.7, 1.0)
    """Each prompt is asked at each of them; 0 takes the likeliest token."""
    samples: int = 1
    """Rows for each prompt and temperature."""
    top_p: float = 1.0
    """Tokens are drawn from the smallest set that has this much of the probability (Holtzman et al. 2020)."""
    tokens: int = 256
    """Most tokens of a row."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes."""

    model: str
    digest: str | None
    """Of its weights; None where only a server knows it."""
    generation: int = 1
    """1: a model trained on real text alone; 2: one trained on text of such a model, and so on."""


@dataclass(frozen=True, slots=True)
class Job:
    """One row that is wanted."""

    prompt: Prompt
    temperature: float
    seed: int
    identifier: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was written for a job."""

    text: str
    tokens: int
    finish: str
    """Why it ended: `stop` at the end of text, `length` at the most tokens."""


class Generator(Protocol):
    """Whatever writes text: a model of ours, or a server."""

    def answers(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer]]:
        """The answers to some jobs, in any order, each as soon as it is there."""


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts in a file: JSON lines with `prompt` and, if wanted, `id`; or one prompt a line.

    Without `id` a prompt is named by its line. Raises `BadInput` for a missing or empty file and for a wrong line.
    """
    lines = read_lines(path, "give a file of prompts in UTF-8, one a line or JSON lines")
    prompts = [_prompt(line, number, path) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise BadInput(f"{path} holds no prompt")
    names = [prompt.identifier for prompt in prompts]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"{path}: two prompts are named {repeated!r}; give each its own `id`")
    return prompts


def _prompt(line: str, number: int, path: Path) -> Prompt:
    if not path.name.endswith((".jsonl", ".ndjson")):
        return Prompt(str(number), line)
    try:
        row = json.loads(line)
        text = row["prompt"]
        if not isinstance(text, str) or not text:
            raise ValueError("`prompt` is no text")
        return Prompt(str(row.get("id", number)), text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f'{path}, line {number}: expected an object such as {{"prompt": "…"}} ({error})') from error


def jobs_of(prompts: Iterable[Prompt], sampling: Sampling, author: Author) -> list[Job]:
    """All rows that are wanted, in the order of prompts, temperatures and samples."""
    found = []
    for prompt in prompts:
        for temperature in sampling.temperatures:
            for number in range(sampling.samples):
                key = [
                    *(author.model, author.digest, author.generation),
                    *(prompt.identifier, prompt.text, temperature, sampling.top_p, sampling.tokens),
                    *(sampling.seed, number),
                ]
                digest = hashlib.sha256(json.dumps(key, ensure_ascii=False).encode("utf-8", "surrogatepass"))
                seed = int.from_bytes(digest.digest()[:4], "big") >> 1
                found.append(Job(prompt, temperature, seed, digest.hexdigest()[:20]))
    return found


def row_of(job: Job, answer: Answer, sampling: Sampling, author: Author, with_prompt: bool) -> dict[str, Any]:
    """A row of the output."""
    return {
        "id": job.identifier,
        "text": job.prompt.text + answer.text if with_prompt else answer.text,
        "prompt_id": job.prompt.identifier,
        "prompt": job.prompt.text,
        "model": author.model,
        "model_digest": author.digest,
        "generation": author.generation,
        "temperature": job.temperature,
        "top_p": sampling.top_p,
        "seed": job.seed,
        "tokens": answer.tokens,
        "finish": answer.finish,
    }


class Journal:
    """Rows as they come, kept beside the output until all are there.

    A row is on disk before the next is asked for in its place; what a kill left of the last line is cut off.
    """

    def __init__(self, output: Path) -> None:
        """Raises `BadInput` at a line that is no row: a kill leaves none but the last of the journal, and rows
        were paid for."""
        self.output = output
        self.path = output.with_name(f".{output.name}.journal")
        _cut_torn_end(self.path)
        rows = [*_rows(output), *_rows(self.path)]
        self.rows = {row["id"]: row for row in rows}

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Those of which there is no row yet."""
        return [job for job in jobs if job.identifier not in self.rows]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        with open(self.path, "ab") as stream:
            stream.write(json_line(row))
            stream.flush()
        self.rows[row["id"]] = row

    def publish(self, jobs: Sequence[Job]) -> int:
        """Write the rows of `jobs` in their order as the output, whole or not at all; returns how many there
        are."""
        found = [self.rows[job.identifier] for job in jobs if job.identifier in self.rows]
        write_bytes(self.output, b"".join(map(json_line, found)))
        self.path.unlink(missing_ok=True)
        return len(found)


@contextmanager
def held_journal(output: Path) -> Iterator[Journal]:
    """The journal of `output`, which nobody else writes meanwhile.

    Raises `BadInput` where another process does, and where no file can be put at `output`: asking costs money, and
    is not begun in vain.
    """
    if not output.name or (output.exists() and not output.is_file()):
        raise BadInput(f"'{output}' is no regular file; name one")
    path = output.with_name(f".{output.name}.journal")
    with explained_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "ab")  # noqa: SIM115, closed by the next block
    with stream:
        hold(stream.fileno(), path, output)
        try:
            yield Journal(output)
        finally:  # by its holder alone: another's, which is empty still, would be a lock that holds nobody
            if path.is_file() and not path.stat().st_size:
                path.unlink()


def _cut_torn_end(journal: Path) -> None:
    """Cut off what a kill left of the last line: a row is whole when its end of line is there."""
    if not journal.is_file():
        return
    with open(journal, "rb+") as stream:
        content = stream.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            stream.truncate(whole)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("id"), str):
                raise ValueError("an object with `id` is expected")
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{path}, line {number}: no row that was written here ({error}). Correct or delete the line, and "
                "its row is asked for again; or name another output"
            ) from error
        yield row
