"""Files that are not on this machine's disks: whatever `fsspec` knows a protocol for, such as s3, gs, hf and https.

A `RemoteFile` has the few parts of a `Path` that reading needs, so that readers need not tell them apart.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, cast

import fsspec

from stoker.errors import BadInput

_CONTENT_MARKS = ("ETag", "etag", "md5Hash", "content_md5", "checksum", "CRC", "blob_id")
"""What file systems call a value that changes with a file's content."""
_TIME_MARKS = ("mtime", "LastModified", "last_modified", "updated", "created")
_GLOB = "[*"  # a question mark begins the query of an address
_SILENT_SECONDS = 30.0
"""For which a web server may send nothing. That package's own limit is for a whole answer, however large it is."""
_PAUSES = 1.0, 4.0
"""Seconds to wait before a web server is asked again that failed; packages for object stores have their own."""
_GONE = 404, 410
_PASSING = 408, 425, 429
"""Answers that may be others in a moment, beside those from 500 on."""


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
            return listed(self.url, system.info(path))

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
        found = _asked(lambda: _entries(system, path))
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
        listed(system.unstrip_protocol(name) + mark + rest, info)
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


def listed(url: str, info: Mapping[str, Any]) -> RemoteFile:
    """The file at `url`, of which its file system says `info`."""
    content = next((str(info[key]) for key in _CONTENT_MARKS if info.get(key) is not None), None)
    time = next((str(info[key]) for key in _TIME_MARKS if info.get(key) is not None), None)
    return RemoteFile(url, int(info.get("size") or 0), content, time)


class _Bytes(io.RawIOBase):
    """A stream of fsspec's of which every failure is an `OSError`."""

    def __init__(self, stream: Any, system: Any) -> None:
        self._stream = stream
        self._system = system  # an archive is closed with the last that knows it
        # What comes as one stream has lost its place when it fails, and would seem to end there.
        self._may_ask_again = getattr(stream, "size", None) is not None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def readinto(self, into: Any) -> int:
        data = _explained(lambda: self._stream.read(len(into)), self._may_ask_again)
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


def _explained(ask: Any, again: bool = True) -> Any:
    """What `ask` gives; whatever a protocol raises is an `OSError`, as of any file that cannot be read."""
    try:
        return _asked(ask, again)
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from None


def _asked(ask: Any, again: bool = True) -> Any:
    """What `ask` gives, asked `again` where a web server fails in a way that may pass."""
    pauses = list(_PAUSES) if again else []
    while True:
        try:
            return ask()
        except Exception as error:
            reason = _reason(error)
            if not pauses or not _may_pass(reason):
                if reason is error:
                    raise
                raise OSError(f"{type(reason).__name__}: {reason}") from None
            time.sleep(pauses.pop(0))


def _reason(error: Exception) -> Exception:
    """What a web server failed with: of one that fails when asked for a size, fsspec says that there is no file."""
    told = error.__cause__ if isinstance(error, FileNotFoundError) else None
    if not isinstance(told, Exception) or not _is_of_web_server(told) or getattr(told, "status", 0) in _GONE:
        return error
    return told


def _is_of_web_server(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "aiohttp"


def _may_pass(error: Exception) -> bool:
    status = getattr(error, "status", None)
    # One that is silent has been waited for already.
    passing = not isinstance(error, TimeoutError) if status is None else status >= 500 or status in _PASSING
    return passing and _is_of_web_server(error)


async def _web_client(**settings: Any) -> Any:
    """A session that ends when nothing comes for a while, and goes on as long as something does."""
    import aiohttp

    patience = aiohttp.ClientTimeout(total=None, sock_connect=_SILENT_SECONDS, sock_read=_SILENT_SECONDS)
    return aiohttp.ClientSession(**{"timeout": patience, **settings})


for _protocol in ("http", "https"):  # what a user has configured stays
    fsspec.config.conf.setdefault(_protocol, {}).setdefault("get_client", _web_client)
