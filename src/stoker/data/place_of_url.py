"""Places under URLs: their small files, one line for whatever a protocol raises, and a word while one waits."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.data.reading.remote import RemoteFile
from stoker.durable_files import explained_disk_errors
from stoker.errors import StokerError
from stoker.progress import Progress

LISTING = "files.json"
"""What is written beside a published corpus: size and SHA-256 of each of its files."""
_CHUNK = 1 << 20
_WORD_AFTER_SECONDS = 20.0


class Unreachable(StokerError):
    """The place of a URL did not answer, or not as it should."""


def is_url(written: str) -> bool:
    """Whether a path of a recipe names a place that is reached through fsspec, `file://` among them."""
    return "://" in written


def content_at(url: str, name: str, progress: Progress) -> bytes | None:
    """A small file under `url`, None where there is none. Raises `Unreachable`."""
    try:
        with told_while_waiting(progress, url):
            return b"".join(chunks_of(f"{url.rstrip('/')}/{name}"))
    except FileNotFoundError:
        return None


def chunks_of(url: str) -> Iterator[bytes]:
    """The bytes of a file. Raises `FileNotFoundError` where there is none, else `Unreachable`."""
    with explained(f"{url} could not be read"), RemoteFile(url, 0, None, None).open() as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


@contextmanager
def explained(what: str, missing: bool = False) -> Iterator[None]:
    """Turn whatever a protocol raises into one line; that a file is `missing` only where asked."""
    try:
        yield
    except StokerError:
        raise
    except FileNotFoundError as error:
        if not missing:
            raise
        raise Unreachable(f"{what}: {' '.join(str(error).split())} is not there") from error
    except PermissionError as error:
        raise Unreachable(
            f"{what}: {' '.join(str(error).split()) or 'no permission'}; look at the credentials that the package "
            "of the protocol finds, and at what they allow (reading, writing and listing)"
        ) from error
    except Exception as error:  # each protocol has errors of its own
        told = " ".join(str(error).split())
        raise Unreachable(f"{what}: {told or type(error).__name__}") from error


@contextmanager
def told_while_waiting(progress: Progress, what: str) -> Iterator[None]:
    """Say so when the block, which asks a server, has not ended after a while: its package may try for minutes."""
    timer = threading.Timer(
        _WORD_AFTER_SECONDS, progress.say, [f"waiting for an answer: {what} ({_WORD_AFTER_SECONDS:.0f} s so far)"]
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def alone(lock: Path, progress: Progress, waiting: str) -> Iterator[int]:
    """Hold the file `lock`, once every other process has let it go; gives its descriptor, open for appending.

    `waiting` is said where there is another process.
    """
    with explained_disk_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(waiting)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            with suppress(OSError):  # a file system without locks: files still appear whole
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
