"""What a run owns on disk, and the lock that lets only one process own it.

RUN/recipe.yaml  environment.json  plan.json  corpus.json  origin.json  identity
    record/  checkpoints/  report.html  lock
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.durable_files import explained_disk_errors
from stoker.errors import BadInput


@dataclass(frozen=True)
class RunDirectory:
    """Paths inside one run's folder."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The recipe as it was trained, in full."""
        return self.path / "recipe.yaml"

    @property
    def environment(self) -> Path:
        """Machine, versions and device."""
        return self.path / "environment.json"

    @property
    def plan(self) -> Path:
        """What was predicted before the run."""
        return self.path / "plan.json"

    @property
    def corpus(self) -> Path:
        """Copy of the prepared corpus's manifest."""
        return self.path / "corpus.json"

    @property
    def origin(self) -> Path:
        """Where the recipe's file and the prepared corpus are: paths outside this folder."""
        return self.path / "origin.json"

    @property
    def identity(self) -> Path:
        """A name that no other run has."""
        return self.path / "identity"

    @property
    def interventions(self) -> Path:
        """What was decided about single steps."""
        return self.path / "interventions.json"

    @property
    def asked_back(self) -> Path:
        """What someone who watches the run asks it to go back for."""
        return self.path / "asked_back.json"

    @property
    def suspicion(self) -> Path:
        """What is being done again to find out which rank was wrong."""
        return self.path / "suspicion.json"

    @property
    def record(self) -> Path:
        """Folder of the append-only record."""
        return self.path / "record"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints, one sub-folder each."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """The static page."""
        return self.path / "report.html"

    @property
    def lock_file(self) -> Path:
        """Says who holds the folder."""
        return self.path / "lock"

    @property
    def is_held(self) -> bool:
        """Whether a process holds the folder now: the run is under way."""
        try:
            descriptor = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return False

    @property
    def holds_run(self) -> bool:
        """Whether this folder holds a run: a recipe, and something that only a run writes."""
        written = (self.plan, self.origin, self.environment, self.record, self.checkpoints)
        return self.recipe.is_file() and any(path.exists() for path in written)

    def require_run(self) -> None:
        """Raise `BadInput` unless this folder holds a run."""
        if not self.recipe.is_file():
            raise BadInput(f"{self.path} is not a run: it has no recipe.yaml. `stoker train RECIPE` makes one.")
        if not self.holds_run:
            raise BadInput(
                f"{self.path} is not a run: it has a recipe.yaml and nothing that a run writes. "
                f"`stoker train {self.recipe}` trains it; by default the run is {self.path}/runs/NAME."
            )

    def require_free_for(self, recipe: Path) -> None:
        """Raise `BadInput` when a run of the recipe file `recipe` cannot live here without losing what is here."""
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"the run's folder {self.path} is a file; name a folder (`run`, or --run FOLDER)")
        if not self.recipe.is_file() or self.holds_run:
            return
        whose = "the recipe itself" if self.recipe.samefile(recipe) else "a recipe.yaml that is no run's"
        raise BadInput(
            f"the run's folder {self.path} holds {whose}, and a run keeps its own recipe.yaml there; "
            "name another folder (`run`, or --run FOLDER)"
        )

    @contextmanager
    def held(self, purpose: str) -> Iterator[int]:
        """Hold the folder for this process (and the workers it starts) until the block ends.

        The lock is the operating system's, so it ends with the process, however that ends. Yields
        the lock's file descriptor; a worker that is handed a duplicate of it keeps the lock alive.
        Raises `BadInput` when another process holds it, naming host, process and purpose.
        """
        with locked_folder(self.path, self.lock_file, purpose) as descriptor:
            yield descriptor


@contextmanager
def locked_folder(folder: Path, lock_file: Path, purpose: str) -> Iterator[int]:
    """Hold `lock_file` inside `folder` exclusively; see `RunDirectory.held`."""
    with explained_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.read(descriptor, 4096))
            raise BadInput(
                f"{folder} is in use: {holder}. Wait for it, stop it, or choose another folder."
            ) from None
        holder_text = json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "purpose": purpose,
                "since": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            }
        )
        with explained_disk_errors(lock_file):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder_text.encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _holder(content: bytes) -> str:
    """Who holds a lock, in words, from what the holder wrote into it."""
    try:
        said = json.loads(content)
        return f"process {said['pid']} on {said['host']} ({said['purpose']}) since {said['since']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown process"


def value_at(content: Any, *path: str) -> Any:
    """The value under `path` of what a YAML or JSON file of a run holds; None where there is none."""
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    return content
