"""Publishing a prepared corpus under a URL, so that it goes on where it was broken off.

    <url>/<files of the corpus>
    <url>/files.json           size and SHA-256 of each of them
    <url>/manifest.json        written last: a folder without it is no corpus

What was sent is noted beside the corpus, with the mark (ETag, time) that the place then gave it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import fsspec

from stoker.data.corpus import MANIFEST
from stoker.data.place_of_url import (
    LISTING,
    Unreachable,
    alone,
    chunks_of,
    content_at,
    explained,
    told_while_waiting,
)
from stoker.data.reading.remote import RemoteFile, listed
from stoker.durable_files import sha256_of_file
from stoker.errors import BadInput, StokerError
from stoker.progress import Progress

FORMAT = 1
TIMINGS = "timings.json"
"""Of a corpus's files the one that tells of the machine; two that prepare the same corpus differ in it alone."""


class _Sent(NamedTuple):
    sha256: str
    mark: str
    """What the place said of the file once it was there."""


def publish(folder: Path, url: str, progress: Progress) -> bool:
    """Copy the corpus in `folder` to `url`, its manifest last; False where it is there already.

    Broken off, it goes on: a file that stands there whole is not sent again. That it is whole is known from a note
    of this machine's while the place's mark of it is the same; of a file without one, its content is read back and
    compared. Of several processes of this machine one publishes and the others wait. Raises `BadInput` when another
    corpus stands at `url`, and `StokerError` when the place refuses or is not there.
    """
    manifest = (folder / MANIFEST).read_bytes()
    if _is_there(url, manifest, progress):
        return False
    url = url.rstrip("/")
    notes = folder.with_name(f".publish-{folder.name}-{hashlib.sha256(url.encode()).hexdigest()[:16]}")
    with alone(notes, progress, f"waiting for another process that publishes {folder}") as descriptor:
        if _is_there(url, manifest, progress):
            notes.unlink(missing_ok=True)
            return False
        with explained(f"{url} could not be written", missing=True):
            _Publication(folder, url, notes, descriptor).run(progress)
        notes.unlink(missing_ok=True)
    return True


def _is_there(url: str, manifest: bytes, progress: Progress) -> bool:
    there = content_at(url, MANIFEST, progress)
    if there is not None and there != manifest:
        raise BadInput(
            f"another corpus than this one stands at {url} (its {MANIFEST} differs); name another URL, or delete "
            "what is there"
        )
    return there is not None


class _Publication:
    """One publication, under its lock."""

    def __init__(self, folder: Path, url: str, notes: Path, descriptor: int) -> None:
        self._folder, self._url, self._descriptor = folder, url, descriptor
        self._sent = _noted(notes)
        self._system, self._root = fsspec.core.url_to_fs(url)
        self._root = self._root.rstrip("/")

    def run(self, progress: Progress) -> None:
        """Send what is not there, then the listing, then the manifest."""
        paths = [path for path in self._folder.rglob("*") if path.is_file()]
        names = sorted(str(path.relative_to(self._folder)) for path in paths)
        names = [name for name in names if name not in (MANIFEST, TIMINGS, LISTING)]
        sizes = {name: (self._folder / name).stat().st_size for name in [*names, MANIFEST]}
        digests = {name: sha256_of_file(self._folder / name) for name in sizes}
        with told_while_waiting(progress, self._url):
            self._make_folders(names)
            there = self._there()
        with progress.task("publish the corpus", sum(sizes.values()), "bytes") as task:
            for name in names:
                if self._stands(name, sizes[name], digests[name], there):
                    task.skip(sizes[name])
                else:
                    self._send(name, digests[name])
                    task.advance(sizes[name])
            files = {name: {"bytes": sizes[name], "sha256": digests[name]} for name in sorted(sizes)}
            written = json.dumps({"format": FORMAT, "files": files}, ensure_ascii=False, indent=2) + "\n"
            self._system.pipe_file(f"{self._root}/{LISTING}", written.encode())
            self._system.put_file(str(self._folder / MANIFEST), f"{self._root}/{MANIFEST}")
            task.advance(sizes[MANIFEST])

    def _make_folders(self, names: list[str]) -> None:
        """Where a path begins with a bucket, that must be there: a slip of the pen is not to make one."""
        container = self._root.partition("/")[0]
        if container and not self._system.exists(container):
            raise Unreachable(
                f"{self._url} could not be written: there is no `{container}`, or these credentials may not look "
                "for it; correct the URL, or make it first"
            )
        for parent in sorted({f"{self._root}/{name}".rpartition("/")[0] for name in [*names, MANIFEST]}):
            self._system.makedirs(parent, exist_ok=True)

    def _there(self) -> Mapping[str, RemoteFile]:
        """The files below the URL, by name."""
        self._system.invalidate_cache()
        try:
            found = self._system.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        below = f"{self._root}/"
        return {
            path.removeprefix(below): listed(f"{self._url}/{path.removeprefix(below)}", info)
            for path, info in found.items()
        }

    def _stands(self, name: str, size: int, sha256: str, there: Mapping[str, RemoteFile]) -> bool:
        found = there.get(name)
        if found is None or found.size != size:
            return False
        mark = _mark(found)
        if mark is not None and self._sent.get(name) == _Sent(sha256, mark):
            return True
        digest = hashlib.sha256()
        try:
            for chunk in chunks_of(found.url):
                digest.update(chunk)
        except (OSError, StokerError):  # whatever it is, the one that is sent will be right
            return False
        return digest.hexdigest() == sha256

    def _send(self, name: str, sha256: str) -> None:
        path = f"{self._root}/{name}"
        self._system.put_file(str(self._folder / name), path)
        self._system.invalidate_cache()
        mark = _mark(listed(f"{self._url}/{name}", self._system.info(path)))
        if mark is not None:
            note = json.dumps({"name": name, "sha256": sha256, "mark": mark}, ensure_ascii=False) + "\n"
            with suppress(OSError):  # a disk that is full costs the note, not the publication
                os.write(self._descriptor, note.encode())


def _mark(file: RemoteFile) -> str | None:
    """What a place says of a file's content: another when it is written again."""
    return file.content_mark or file.time_mark


def _noted(notes: Path) -> dict[str, _Sent]:
    sent = {}
    for line in notes.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError):  # a line that a kill cut short
            told: Any = json.loads(line)
            sent[str(told["name"])] = _Sent(str(told["sha256"]), str(told["mark"]))
    return sent
