"""Writing to disk so that a kill at any instant loses nothing and leaves nothing half-written.

The rule everywhere: write beside, flush to the disk, rename. A reader therefore finds
the old file, the new file, or none; never a part of one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from stoker.errors import BadInput, StokerError

PARTIAL_MARK = ".partial-"
_CHUNK = 1 << 20


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_DISK_REASONS = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EFBIG: "the file would exceed the allowed size; raise the limit (ulimit -f) and run again",
    errno.ENAMETOOLONG: "the name is too long for this file system; choose a shorter one",
    errno.EISDIR: "a folder stands where a file is expected; move it away or choose another name",
    errno.EEXIST: "a file stands where a folder is expected; move it away or choose another folder",
    errno.ENOTDIR: "a file stands where a folder is expected; move it away or choose another folder",
    errno.EROFS: "the folder is read-only; choose another or make it writable",
    errno.EACCES: "no permission to write there; choose another folder or change its permissions",
    errno.EPERM: "no permission to write there; choose another folder or change its permissions",
    errno.ELOOP: "links there lead to each other; choose another folder",
}
# What an attempt to write says of a place such as /proc; of an attempt to read it says something else.
_PLACE_REASONS = dict.fromkeys(
    (errno.ENOENT, errno.EINVAL, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP),
    "no folder or file can be made there; choose another folder",
)


def disk_error(error: OSError, path: Path | str | None) -> StokerError | None:
    """What to tell the user of a full disk, a read-only folder and the like; None for any other error."""
    reason = _DISK_REASONS.get(error.errno or 0)
    return None if reason is None else _not_written("to disk" if path is None else path, reason)


def _not_written(where: Path | str, reason: str) -> StokerError:
    return StokerError(f"could not write {where}: {reason}. Nothing that was complete is lost.")


@contextmanager
def explained_disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, a read-only folder or a place that holds no files into one clear `StokerError` naming
    `path`, to which the block writes."""
    try:
        yield
    except OSError as error:
        reason = _DISK_REASONS.get(error.errno or 0)
        if reason is None and _is_about(error, path):
            reason = _PLACE_REASONS.get(error.errno or 0)
        if reason is None:
            raise
        raise _not_written(path, reason) from error


def _is_about(error: OSError, path: Path) -> bool:
    """Whether it is about `path`, what is in it or what it is in: not about a file that the block reads."""
    if not isinstance(error.filename, str):
        return False
    own, other = path.absolute(), Path(error.filename).absolute()
    return own == other or own in other.parents or other in own.parents


@contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under `path` whole, or not at all.

    What a symbolic link points to is written, the link stays. A device or a pipe is refused: a rename would
    put a file in its place.
    """
    if not path.name:
        raise BadInput(f"'{path}' is a folder; name a file")
    with explained_disk_errors(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise BadInput(f"{path} is a device or a pipe; name a regular file")
        if path.is_symlink():
            path = path.resolve()
    partial = path.with_name(f".{path.name}{PARTIAL_MARK}{uuid.uuid4().hex[:8]}")
    with explained_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(partial, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all."""
    with durable_file(path) as stream:
        stream.write(content)


def write_text(path: Path, content: str) -> None:
    """Write `content` as UTF-8 to `path`, whole or not at all."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write `content` as readable JSON to `path`, whole or not at all; half of a surrogate pair as `\\ud800`."""
    written = json.dumps(content, ensure_ascii=False, indent=2, sort_keys=False) + "\n"
    write_bytes(path, written.encode(errors="backslashreplace"))


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def publish_folder(partial: Path, final: Path) -> None:
    """Rename the finished folder `partial` to `final`, after flushing every file in it to the disk.

    `final` must not exist; both must be on one file system.
    """
    with explained_disk_errors(final):
        for file in sorted(partial.rglob("*")):
            if file.is_file():
                descriptor = os.open(file, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            else:
                sync_folder(file)
        sync_folder(partial)
        os.rename(partial, final)
        sync_folder(final.parent)


@contextmanager
def durable_folder(final: Path) -> Iterator[Path]:
    """A folder to be filled, which appears as `final` whole, or not at all.

    What a killed writer left of it is cleared away. Raises `BadInput` where `final` is there and not an empty
    folder, and while another process fills it.
    """
    if not final.name:
        raise BadInput(f"'{final}' names no new folder; give it a name")
    partial = final.with_name(f".{final.name}{PARTIAL_MARK}folder")
    with explained_disk_errors(final):
        if os.path.lexists(final) and (not final.is_dir() or any(final.iterdir())):
            raise BadInput(f"{final} exists already and is not an empty folder; name another")
        with explained_disk_errors(final.parent):
            partial.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
        try:
            hold(descriptor, partial, final)
            try:
                for left in partial.iterdir():
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                yield partial
                publish_folder(partial, final)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        finally:
            os.close(descriptor)


def hold(descriptor: int, partial: Path, final: Path) -> None:
    """Lock `partial`, in which `final` is being made and which `descriptor` has open, until it is closed.

    Raises `BadInput` while another process makes it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = os.path.samestat(os.fstat(descriptor), partial.stat())
    except (BlockingIOError, FileNotFoundError):
        mine = False  # held, or published or given up since it was opened
    except OSError:
        mine = True  # a file system without locks on folders
    if not mine:
        raise BadInput(f"{final} is just being written by another process; wait for it, or name another place")


def remove_partials(folder: Path) -> None:
    """Delete what a killed writer left in `folder`. Only the holder of the folder's lock may call this."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if PARTIAL_MARK in entry.name and entry.name.startswith("."):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
