"""The page's own files: read and packed once, under an address that names their content: browsers keep them.

A server that runs for weeks gives the files it began with, also when the package on the disk is another by then: a
page is never put together from two versions.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import stoker

_PAGE = Path(__file__).parent / "page"
# The report has the library of charts as well; one copy serves both.
_VENDOR = Path(stoker.__file__).parent / "report" / "vendor"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_INDEX = "index.html"
_FOREVER = "private, max-age=31536000, immutable"


@dataclass(frozen=True)
class PageFile:
    """One file as it is sent: as it stands, and packed by gzip."""

    content: bytes
    packed: bytes
    media_type: str


@dataclass(frozen=True)
class PageFiles:
    """All files of the page by name, and the version that their addresses carry."""

    version: str
    files: dict[str, PageFile]

    def answer(self, request: Request) -> Response:
        """The file of `/file/VERSION/NAME`, or the page that names them; no other name is looked up on the disk.

        Raises `HTTPException` for what is no file of this version.
        """
        name = request.path_params.get("name", _INDEX)
        file = self.files.get(name)
        if file is None or request.path_params.get("version", self.version) != self.version:
            raise HTTPException(404, "there is no such file")
        headers = {"cache-control": "no-cache" if name == _INDEX else _FOREVER, "vary": "accept-encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(file.content, media_type=file.media_type, headers=headers)
        return Response(file.packed, media_type=file.media_type, headers={**headers, "content-encoding": "gzip"})


@cache
def page_files() -> PageFiles:
    """The files of the package, read the first time they are asked for."""
    paths = [path for folder in (_PAGE, _VENDOR) for path in folder.iterdir() if path.suffix in _TYPES]
    contents = {path.name: path.read_bytes() for path in sorted(paths)}
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    version = digest.hexdigest()[:12]
    contents[_INDEX] = contents[_INDEX].replace(b'"/file/', f'"/file/{version}/'.encode())
    files = {
        name: PageFile(content, gzip.compress(content, mtime=0), _TYPES[Path(name).suffix])
        for name, content in contents.items()
    }
    return PageFiles(version, files)
