"""Where the copies of a run's state are kept in a node's memory, and when they go.

    /dev/shm/stoker-<identity of the run>/
        run                the run's folder
        namespace          the mounts by which that folder is one
        <node>/rank-00003/ that rank's copies: see `stoker.checkpoint.snapshots`

What a command leaves there because it was killed, or could not save it, the next one goes on from. What belongs to
no run any more is removed.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.checkpoint import Place, read_complete
from stoker.checkpoint.manifest import step_folders, step_of
from stoker.durable_files import explained_disk_errors, write_text
from stoker.run_directory import RunDirectory

_PREFIX = "stoker-"
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_OWNER = "run"
_NAMESPACE = "namespace"
_FORGOTTEN_SECONDS = 7 * 86_400.0
"""Copies of a container's run that nobody has touched for so long are removed by others too."""
_log = logging.getLogger(__name__)


def memory_root() -> Path:
    """The folder whose files are memory: `/dev/shm` on Linux, otherwise where temporary files are."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


def identity_of(run: RunDirectory) -> str:
    """What tells this run from any other that ever was in its folder. The caller holds the folder.

    A run's folder that was copied gets another one, while the first still has copies in this node's memory: each
    would take the other's for its own.
    """
    try:
        found = run.identity.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = ""
    if not _IDENTITY.fullmatch(found) or _is_anothers(found, run):
        found = uuid.uuid4().hex
        write_text(run.identity, found + "\n")
    return found


def _is_anothers(identity: str, run: RunDirectory) -> bool:
    """Whether the copies under `identity` are those of a run in another folder, which is still there."""
    try:
        owner = RunDirectory(_owner_of(memory_root() / f"{_PREFIX}{identity}"))
        same = owner.path.samefile(run.path)
        return not same and owner.identity.read_text(encoding="ascii").strip() == identity
    except OSError:
        return False


def _owner_of(folder: Path) -> Path:
    return Path((folder / _OWNER).read_text(encoding="utf-8"))


@contextmanager
def copies_of(
    run: RunDirectory, checkpoints: Place, node: str, wanted: bool, identity: str | None = None
) -> Iterator[Path | None]:
    """The folder for this node's copies of the run's state; None when none are `wanted`.

    `identity` is the run's; None: the caller holds the run's folder, and looks for itself. Removed when the block
    ends, unless it holds a later step than `checkpoints` do: a run that gives up, cannot save or is not even begun
    loses no more than one that is killed.
    """
    root = memory_root()
    folder = root / f"{_PREFIX}{identity or identity_of(run)}"
    if folder.is_dir():  # a run whose folder was moved keeps its copies
        with suppress(OSError):  # when memory is full there is room again once strays are gone
            _write_owner(folder, run)
    remove_strays(root)
    if not wanted:
        _remove_node(folder, node)
        yield None
        return
    own = folder / node
    with explained_disk_errors(own):
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_owner(folder, run)
    try:
        yield own
    finally:
        step = _newest(own)
        if step is not None and step > _newest_saved(checkpoints):
            _log.warning("step %d is in memory only (%s): the same command goes on from there", step, own)
        else:
            _remove_node(folder, node)


def _newest(own: Path) -> int | None:
    """The last step that any complete copy on this node is of."""
    folders = {file.parent for file in own.rglob("slot-*.json")}
    return max((one.step for folder in folders for one in read_complete(folder)), default=None)


def _newest_saved(checkpoints: Place) -> int:
    """The last step on the disk; -1 when there is none that can be seen."""
    try:
        return max((step_of(path) or 0 for path in step_folders(checkpoints)), default=-1)
    except OSError:
        return -1


def _remove_node(folder: Path, node: str) -> None:
    """Remove what is of `node`, and everything when that was the last one."""
    shutil.rmtree(folder / node, ignore_errors=True)
    if folder.is_dir() and not any(path.is_dir() for path in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def _write_owner(folder: Path, run: RunDirectory) -> None:
    """Say whose copies are in `folder`, so that no other command ever reads half of it."""
    for name, content in ((_NAMESPACE, _mounts()), (_OWNER, str(run.path.resolve()))):
        partial = folder / f".{name}.{os.getpid()}"
        partial.write_text(content, encoding="utf-8")
        os.replace(partial, folder / name)


def _mounts() -> str:
    """What tells the mounts that this process sees from a container's that shares the same memory."""
    try:
        return str(Path("/proc/self/ns/mnt").readlink())
    except OSError:
        return ""


def _may_be_anothers(folder: Path) -> bool:
    """Whether the owner is named by other mounts, and may be there where nobody can see it from here."""
    try:
        elsewhere = (folder / _NAMESPACE).read_text(encoding="utf-8") != _mounts()
    except FileNotFoundError:
        return False
    newest = max((path.stat().st_mtime for path in folder.rglob("*")), default=0.0)
    return elsewhere and time.time() - newest < _FORGOTTEN_SECONDS


def remove_strays(root: Path) -> None:
    """Remove this user's copies of runs that are no more, or have another identity now."""
    for folder in root.glob(f"{_PREFIX}*"):
        identity = folder.name.removeprefix(_PREFIX)
        try:
            if not _IDENTITY.fullmatch(identity) or folder.stat().st_uid != os.getuid():
                continue
            if _may_be_anothers(folder):
                continue
            run = RunDirectory(_owner_of(folder))
            if run.identity.read_text(encoding="ascii").strip() == identity:
                continue
        except FileNotFoundError:  # no owner, or no such run: unless another process is just making it
            if not folder.is_dir() or not (folder / _OWNER).exists():
                continue
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
