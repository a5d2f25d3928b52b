"""Writing to disk so that a kill at any instant loses nothing and leaves nothing half-written.

The rule everywhere: write beside, flush to the disk, rename. A reader therefore finds
the old file, the new file, or none; never a part of one.
"""

from __future__ import annotations

import errno
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
}


def disk_error(error: OSError, path: Path | str | None) -> StokerError | None:
    """What to tell the user of a full disk, a read-only folder and the like; None for any other error."""
    reason = _DISK_REASONS.get(error.errno or 0)
    if reason is None:
        return None
    where = "to disk" if path is None else path
    return StokerError(f"could not write {where}: {reason}. Nothing that was complete is lost.")


@contextmanager
def explained_disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into one clear `StokerError` naming `path`."""
    try:
        yield
    except OSError as error:
        explained = disk_error(error, path)
        if explained is None:
            raise
        raise explained from error


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
    """Write `content` as readable JSON to `path`, whole or not at all."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=2, sort_keys=False) + "\n")


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
