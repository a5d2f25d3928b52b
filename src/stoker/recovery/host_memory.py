"""Where the copies of a run's state are kept in a node's memory, and when they go.

    /dev/shm/stoker-<identity of the run>/
        run                the run's folder
        <node>/rank-00003/ that rank's copies: see `stoker.checkpoint.snapshots`

What a command that was killed leaves there the next one goes on from. What belongs to no run any more is removed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.durable_files import explained_disk_errors, write_text
from stoker.run_directory import RunDirectory

_PREFIX = "stoker-"
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_OWNER = "run"


def memory_root() -> Path:
    """The folder whose files are memory: `/dev/shm` on Linux, otherwise where temporary files are."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


def identity_of(run: RunDirectory) -> str:
    """What tells this run from any other that ever was in its folder. The caller holds the folder."""
    try:
        found = run.identity.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = ""
    if not _IDENTITY.fullmatch(found):
        found = uuid.uuid4().hex
        write_text(run.identity, found + "\n")
    return found


@contextmanager
def copies_of(run: RunDirectory, node: str, wanted: bool, identity: str | None = None) -> Iterator[Path | None]:
    """The folder for this node's copies of the run's state; None when none are `wanted`.

    `identity` is the run's; None: the caller holds the run's folder, and looks for itself. Removed when the block
    ends in any way but the end of the process: what it held is saved by then, or useless.
    """
    root = memory_root()
    remove_strays(root)
    folder = root / f"{_PREFIX}{identity or identity_of(run)}"
    if not wanted:
        shutil.rmtree(folder / node, ignore_errors=True)
        yield None
        return
    own = folder / node
    with explained_disk_errors(own):
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / _OWNER).write_text(str(run.path.resolve()), encoding="utf-8")
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        if not any(path.is_dir() for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


def remove_strays(root: Path) -> None:
    """Remove this user's copies of runs that are no more, or have another identity now."""
    for folder in root.glob(f"{_PREFIX}*"):
        identity = folder.name.removeprefix(_PREFIX)
        try:
            if not _IDENTITY.fullmatch(identity) or folder.stat().st_uid != os.getuid():
                continue
            run = RunDirectory(Path((folder / _OWNER).read_text(encoding="utf-8")))
            if run.identity.read_text(encoding="ascii").strip() == identity:
                continue
        except FileNotFoundError:  # no owner, or no such run: unless another process is just making it
            if not folder.is_dir() or not (folder / _OWNER).exists():
                continue
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
