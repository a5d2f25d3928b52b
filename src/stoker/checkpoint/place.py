"""Where checkpoints are: a folder of this machine, or one in an object store that fsspec speaks to (`s3://…`).

A local folder gets its name by one rename when everything in it is on the disk. Object stores know no rename: a
checkpoint has a name of its own from the start there, and is one once the marker is in it, which is written last.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import fsspec

from stoker.checkpoint.reading import LocalFile, Source
from stoker.durable_files import PARTIAL_MARK, explained_disk_errors, publish_folder
from stoker.errors import BadInput, StokerError
from stoker.recipe import Checkpoint
from stoker.run_directory import RunDirectory


class _Facts(NamedTuple):
    """Like `os.stat_result`: what tells a file from the one that was there before."""

    st_size: int
    st_mtime_ns: int
    st_ino: int


@dataclass(frozen=True)
class ObjectFolder:
    """A folder or file in an object store, with those methods of `Path` that checkpoints need."""

    url: str
    _files: Any = field(repr=False, compare=False)
    _path: str = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The last part."""
        return self._path.rstrip("/").rpartition("/")[2]

    def __truediv__(self, name: str) -> ObjectFolder:
        return ObjectFolder(f"{self.url.rstrip('/')}/{name}", self._files, f"{self._path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.url

    def __lt__(self, other: ObjectFolder) -> bool:
        return self.url < other.url

    def is_dir(self) -> bool:
        """Whether anything is in it."""
        self._files.invalidate_cache()
        return bool(self._files.isdir(self._path))

    def exists(self) -> bool:
        """Whether it is there."""
        self._files.invalidate_cache()
        return bool(self._files.exists(self._path))

    def mkdir(self) -> None:
        """Make it, where a store has folders at all."""
        self._files.makedirs(self._path, exist_ok=True)

    def iterdir(self) -> Iterator[ObjectFolder]:
        """What is in it."""
        self._files.invalidate_cache()
        for found in self._files.ls(self._path, detail=False):
            yield self / str(found).rstrip("/").rpartition("/")[2]

    def resolve(self) -> ObjectFolder:
        """Itself."""
        return self

    def stat(self) -> _Facts:
        """Size and age. Raises `FileNotFoundError`."""
        self._files.invalidate_cache()
        facts: Mapping[str, Any] = self._files.info(self._path)
        # Stores name a version differently; whatever changes with it will do.
        version = hash(str([facts.get(key) for key in ("ETag", "etag", "created", "mtime", "LastModified")]))
        return _Facts(int(facts["size"]), version, 0)

    def changed(self) -> float | None:
        """Unix time of the last change; None where the store does not tell."""
        try:
            return float(self._files.modified(self._path).timestamp())
        except (RuntimeError, KeyError):  # the former when a store's package has no such question
            return None

    def read_bytes(self) -> bytes:
        """All of a file. Raises `FileNotFoundError`."""
        content: bytes = self._files.cat_file(self._path)
        return content

    def write_bytes(self, content: bytes) -> None:
        """Write a file; it is there in full or not at all."""
        self._files.pipe_file(self._path, content)

    def open_for_writing(self) -> BinaryIO:
        """A file that is there once it is closed."""
        stream: BinaryIO = self._files.open(self._path, "wb")
        return stream

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill `memory` with what is at `offset`. Raises `OSError` when there is less."""
        content = self._files.cat_file(self._path, offset, offset + len(memory))
        if len(content) != len(memory):
            raise OSError(f"{self.url} ends before byte {offset + len(memory)}")
        memory[:] = content

    def close(self) -> None:
        """Nothing is held open."""

    def discard(self) -> None:
        """Delete it and all that is in it, if it is there."""
        try:
            self._files.rm(self._path, recursive=True)
        except FileNotFoundError:
            return


Place = Path | ObjectFolder
AnyPlace = TypeVar("AnyPlace", Path, ObjectFolder)


def place(where: str | Place) -> Place:
    """The place that a recipe names: a path, `file://…`, or the address of a folder in an object store.

    Raises `BadInput` when nothing here can speak to it.
    """
    if not isinstance(where, str):
        return where
    if "://" not in where or where.startswith("file://"):
        return Path(where.removeprefix("file://"))
    try:
        files, path = fsspec.core.url_to_fs(where, use_listings_cache=False)
    except ImportError as error:
        raise BadInput(
            f"checkpoint.folder is {where}, which needs a package that is not here: {error}. Install it beside "
            "stoker with pip, or name another folder."
        ) from None
    except ValueError as error:
        raise BadInput(
            f"checkpoint.folder is {where}: {error}; name a folder, or a URL that fsspec knows such as "
            "s3://bucket/folder, gs://bucket/folder or file:///folder"
        ) from None
    return ObjectFolder(where.rstrip("/"), files, path)


def checkpoints_of(run: RunDirectory, policy: Checkpoint) -> Place:
    """Where the checkpoints of `run` are. Raises `BadInput` when nothing here can speak to that store."""
    return run.checkpoints if policy.folder is None else place(policy.folder)


def opened(file: Place, *, past_cache: bool = False) -> Source:
    """A file that any number of threads may read at once; `past_cache` is as that of `LocalFile`."""
    return LocalFile(str(file), past_cache=past_cache) if isinstance(file, Path) else file


@contextmanager
def explained_errors(where: Place) -> Iterator[None]:
    """Turn what a disk or an object store refuses into one clear `StokerError` naming `where`."""
    if isinstance(where, Path):
        with explained_disk_errors(where):
            yield
        return
    try:
        yield
    except OSError as error:
        raise StokerError(f"could not write {where}: {error}. Nothing that was complete is lost.") from error


def unfinished_name(checkpoints: Place, name: str) -> str:
    """What the folder of a checkpoint `name` is called while it is written; in an object store, for good."""
    unique = uuid.uuid4().hex[:8]
    return f".{name}{PARTIAL_MARK}{unique}" if isinstance(checkpoints, Path) else f"{name}-{unique}"


def make(folder: Place) -> None:
    """Make `folder`, so that files can be written into it."""
    if isinstance(folder, Path):
        with explained_disk_errors(folder.parent):
            folder.mkdir(parents=True)
        return
    with explained_errors(folder):
        folder.mkdir()


def publish(folder: Place, name: str, files: Sequence[tuple[str, bytes]]) -> None:
    """Write the last `files` into `folder`, one after the other, and then give it its `name`.

    A folder that has that name makes way. In an object store the last file alone makes the checkpoint.
    """
    if isinstance(folder, ObjectFolder):
        with explained_errors(folder):
            for file, content in files:
                (folder / file).write_bytes(content)
        return
    with explained_disk_errors(folder):
        for file, content in files:
            (folder / file).write_bytes(content)  # flushed with all others, before the folder has its name
    final = folder.with_name(name)
    if final.exists():
        remove(final, "")
    publish_folder(folder, final)


def remove(folder: Place, marker: str) -> None:
    """Delete a checkpoint, in such an order that a kill half-way leaves nothing that looks like one.

    `marker` is the file without which it is none.
    """
    if isinstance(folder, ObjectFolder):
        with explained_errors(folder):
            (folder / marker).discard()
            folder.discard()
        return
    doomed = folder.with_name(f".{folder.name}{PARTIAL_MARK}{uuid.uuid4().hex[:8]}")
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def abandon(folder: Place) -> None:
    """Delete what a save left that failed."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):  # where the store is away, what is left is ignored, and removed after a later save
        folder.discard()
