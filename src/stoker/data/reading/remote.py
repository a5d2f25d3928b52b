"""Files that are not on this machine's disks: whatever `fsspec` knows a protocol for, such as s3, gs, hf and https.

A `RemoteFile` has the few parts of a `Path` that reading needs, so that readers need not tell them apart.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, cast

import fsspec

from stoker.errors import BadInput

_CONTENT_MARKS = ("ETag", "etag", "md5Hash", "content_md5", "checksum", "CRC", "blob_id")
"""What file systems call a value that changes with a file's content."""
_TIME_MARKS = ("mtime", "LastModified", "last_modified", "updated", "created")
_GLOB = "[*"  # a question mark begins the query of an address


class RemoteStatus(NamedTuple):
    """Like `os.stat_result`."""

    st_size: int
    """In bytes."""
    st_mtime_ns: int
    """Not a time, but another number whenever the file is another."""
    st_ctime_ns: int = 0
    st_ino: int = 0


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file under a URL, as it was listed."""

    url: str
    size: int
    content_mark: str | None
    """Checksum or version that its file system gives for its content; None where it gives none."""
    time_mark: str | None
    """When it was changed, in whatever words; None where nobody says."""

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.url.partition("::")[0].rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name with its dot, or nothing."""
        before, dot, ending = self.name.rpartition(".")
        return dot + ending if before else ""

    def open(self, mode: str = "rb") -> BinaryIO:
        """Its bytes, fetched as they are read. Raises `OSError`."""
        system, path = _explained(lambda: fsspec.core.url_to_fs(self.url))
        stream = _explained(lambda: system.open(path, mode))
        return cast("BinaryIO", io.BufferedReader(_Bytes(stream, system)))

    def stat(self) -> RemoteStatus:
        """Its size and mark when it was listed."""
        mark = f"{self.size} {self.content_mark} {self.time_mark}".encode()
        return RemoteStatus(self.size, int.from_bytes(hashlib.sha256(mark).digest()[:7], "big"))

    def as_it_is_now(self) -> RemoteFile:
        """The same file listed anew. Raises `OSError` where it is gone."""

        def look() -> RemoteFile:
            system, path = fsspec.core.url_to_fs(self.url)
            system.invalidate_cache()
            return _listed(self.url, system.info(path))

        return cast("RemoteFile", _explained(look))


def is_remote(written: str) -> bool:
    """Whether a path of a recipe is a URL of something else than a file of this machine."""
    return "://" in written and not written.startswith("file://")


def find(url: str, where: str) -> list[RemoteFile]:
    """Files that a URL names: a file, a folder (all of it) or a glob; sorted, hidden ones left out.

    Raises `BadInput` beginning with `where` if nobody knows the protocol, its package is missing, or it refuses.
    """
    try:
        system, path = fsspec.core.url_to_fs(url)
        found = _entries(system, path)
    except ImportError as error:
        raise BadInput(f"{where} needs a package that is not installed here: {error}") from None
    except ValueError as error:
        raise BadInput(f"{where} is in no place that can be read from: {error}") from None
    except FileNotFoundError:
        return []
    except Exception as error:  # each protocol has errors of its own
        raise BadInput(f"{where} cannot be listed: {type(error).__name__}: {error}") from None
    _, mark, rest = url.partition("::")
    below = path.rstrip("/")
    return [
        _listed(system.unstrip_protocol(name) + mark + rest, info)
        for name, info in sorted(found.items())
        if info.get("type", "file") == "file" and not _is_hidden(name.removeprefix(below))
    ]


def _entries(system: Any, path: str) -> dict[str, Mapping[str, Any]]:
    if any(letter in path for letter in _GLOB):
        matched: dict[str, Mapping[str, Any]] = system.glob(path, detail=True)
        files = {name: info for name, info in matched.items() if info["type"] == "file"}
        for name in matched.keys() - files.keys() if not files else ():  # a glob that names folders
            files |= system.find(name, detail=True)
        return files
    info = system.info(path)
    if info["type"] == "file" and not path.endswith("/"):
        return {path: info}
    return dict(system.find(path, detail=True))


def _is_hidden(below: str) -> bool:
    return any(part.startswith(".") for part in below.split("/"))


def _listed(url: str, info: Mapping[str, Any]) -> RemoteFile:
    content = next((str(info[key]) for key in _CONTENT_MARKS if info.get(key) is not None), None)
    time = next((str(info[key]) for key in _TIME_MARKS if info.get(key) is not None), None)
    return RemoteFile(url, int(info.get("size") or 0), content, time)


class _Bytes(io.RawIOBase):
    """A stream of fsspec's of which every failure is an `OSError`."""

    def __init__(self, stream: Any, system: Any) -> None:
        self._stream = stream
        self._system = system  # an archive is closed with the last that knows it

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def readinto(self, into: Any) -> int:
        data = _explained(lambda: self._stream.read(len(into)))
        into[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(_explained(lambda: self._stream.seek(offset, whence)))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _explained(ask: Any) -> Any:
    """What `ask` gives; whatever a protocol raises is an `OSError`, as of any file that cannot be read."""
    try:
        return ask()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
