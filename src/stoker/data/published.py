"""Prepared corpora under a URL: published whole, and fetched once into a folder of this machine.

    <url>/<files of the corpus>
    <url>/files.json           size and SHA-256 of each of them
    <url>/manifest.json        written last: a folder without it is no corpus

A fetched corpus becomes `<folder>` by one rename. Until then its files stand in `.fetch-<name>` beside it, each
whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import fsspec

from stoker.data.corpus import MANIFEST
from stoker.data.reading.remote import RemoteFile
from stoker.durable_files import (
    durable_file,
    explained_disk_errors,
    publish_folder,
    remove_partials,
    sha256_of_file,
    write_bytes,
)
from stoker.errors import BadInput, StokerError
from stoker.plural import counted
from stoker.progress import Progress

LISTING = "files.json"
_FORMAT = 1
_CHUNK = 1 << 20
_GIGABYTE = 1e9


class _Unreachable(StokerError):
    """The place of a URL did not answer, or not as it should."""


class _Published(NamedTuple):
    bytes: int
    sha256: str


def is_url(written: str) -> bool:
    """Whether a path of a recipe names a place that is reached through fsspec, `file://` among them."""
    return "://" in written


def url_in(prepared: str, fingerprint: str) -> str | None:
    """Where a corpus is published under `data.prepared`; None where that is a folder of this machine."""
    return f"{prepared.rstrip('/')}/{fingerprint}" if is_url(prepared) else None


def folder_of_url(parent: Path, url: str) -> Path:
    """Where in `parent` the corpus at `url` is kept: a name that the URL alone decides."""
    return parent / f"url-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:16]}"


def is_here(folder: Path) -> bool:
    """Whether a whole corpus stands in a folder of this machine."""
    return (folder / MANIFEST).is_file()


def bring(url: str, folder: Path, progress: Progress) -> bool:
    """See that the corpus at `url` stands in `folder`, fetching it unless it does; False where there is none.

    Of several processes that ask at once, one fetches and the others wait. A fetch that was killed goes on with the
    files that are not there yet. Where the corpus is here already, only the manifest is compared; a place that does
    not answer then stops nothing. Raises `BadInput` when another corpus stands at `url` than in `folder`, and
    `StokerError` when a file is not what was published, the place does not answer or the disk refuses.
    """
    if is_here(folder):
        try:
            manifest = _content(url, MANIFEST)
        except _Unreachable as error:
            progress.say(f"{error}. What was fetched before is used: {folder}")
            return True
        if manifest is not None and manifest != (folder / MANIFEST).read_bytes():
            raise BadInput(
                f"the corpus at {url} is another than the one that is kept of it in {folder}; delete that "
                "folder to fetch it anew (runs that were trained on it need it as it is), or delete that at the URL"
            )
        return True
    manifest = _content(url, MANIFEST)
    if manifest is None:
        return False
    with _alone(folder, progress):
        if not is_here(folder):  # another process may just have fetched it
            _fetch(url, manifest, folder, progress)
    return True


def publish(folder: Path, url: str, progress: Progress) -> bool:
    """Copy the corpus in `folder` to `url`, its manifest last; False where it is there already.

    Stopped before the manifest, it begins again: nobody can say what of a file without one arrived. Raises
    `StokerError` when the place refuses.
    """
    if _content(url, MANIFEST) is not None:
        return False
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    with _explained(f"{url} could not be written", missing=True):
        system, root = fsspec.core.url_to_fs(url)
        root = root.rstrip("/")
        sizes = {name: (folder / name).stat().st_size for name in names}
        with progress.task("publish the corpus", sum(sizes.values()), "bytes") as task:
            listed = {name: {"bytes": sizes[name], "sha256": sha256_of_file(folder / name)} for name in names}
            for parent in sorted({f"{root}/{name}".rpartition("/")[0] for name in names}):
                system.makedirs(parent, exist_ok=True)
            for name in (name for name in names if name != MANIFEST):
                system.put_file(str(folder / name), f"{root}/{name}")
                task.advance(sizes[name])
            written = json.dumps({"format": _FORMAT, "files": listed}, ensure_ascii=False, indent=2) + "\n"
            system.pipe_file(f"{root}/{LISTING}", written.encode())
            system.put_file(str(folder / MANIFEST), f"{root}/{MANIFEST}")
            task.advance(sizes[MANIFEST])
    return True


def _fetch(url: str, manifest: bytes, folder: Path, progress: Progress) -> None:
    files = _listed(url, manifest)
    partial = folder.with_name(f".fetch-{folder.name}")
    with explained_disk_errors(partial):
        partial.mkdir(parents=True, exist_ok=True)
        for below in [partial, *(path for path in partial.rglob("*") if path.is_dir())]:
            remove_partials(below)
        for path in [path for path in partial.rglob("*") if path.is_file()]:
            if str(path.relative_to(partial)) not in files:
                path.unlink()  # of what stood at the URL when an earlier fetch began
    total = sum(one.bytes for one in files.values())
    progress.say(f"fetching {url} ({total / _GIGABYTE:,.3f} GB) to {folder}")
    with progress.task("fetch the corpus", total, "bytes") as task:
        missing = []
        for name, published in files.items():
            if _is_whole(partial / name, published):
                task.skip(published.bytes)
            else:
                missing.append(name)
        _require_room(partial, sum(files[name].bytes for name in missing), url)
        for name in (name for name in missing if name != MANIFEST):
            _fetch_file(f"{url.rstrip('/')}/{name}", partial / name, files[name])
            task.advance(files[name].bytes)
    write_bytes(partial / MANIFEST, manifest)
    shutil.rmtree(folder, ignore_errors=True)  # a corpus without its manifest is no corpus
    publish_folder(partial, folder)


def _is_whole(path: Path, published: _Published) -> bool:
    return path.is_file() and path.stat().st_size == published.bytes and sha256_of_file(path) == published.sha256


def _fetch_file(url: str, into: Path, published: _Published) -> None:
    digest = hashlib.sha256()
    with _explained(f"{url} could not be fetched", missing=True), durable_file(into) as stream:
        for chunk in _chunks(url):
            digest.update(chunk)
            stream.write(chunk)
        if digest.hexdigest() != published.sha256:
            raise StokerError(
                f"{url}: its content is not what was published: SHA-256 {published.sha256} expected, found "
                f"{digest.hexdigest()} in {counted(stream.tell(), 'bytes')} of {published.bytes:,}. Run the same "
                "command again; if it stays so, publish the corpus anew"
            )


def _listed(url: str, manifest: bytes) -> Mapping[str, _Published]:
    """Files of the corpus at `url`, the manifest last. Raises `StokerError` where listing and manifest differ."""
    content = _content(url, LISTING)
    place = f"{url.rstrip('/')}/{LISTING}"
    if content is None:
        raise StokerError(
            f"{place} is missing: the corpus was not published by `stoker prepare`, which writes what each file "
            "must be; publish it so, or copy it to this machine"
        )
    try:
        told = json.loads(content)
        files = {
            str(name): _Published(int(one["bytes"]), str(one["sha256"])) for name, one in told["files"].items()
        }
        digests = _digests_in(json.loads(manifest))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StokerError(f"{place} or the manifest beside it is damaged ({error!r}); publish it anew") from None
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not name.isprintable() or str(path) != name:
            raise StokerError(f"{place}: {name!r} is no file of a corpus")
    digests[MANIFEST] = hashlib.sha256(manifest).hexdigest()
    for name, digest in digests.items():
        if name not in files or files[name].sha256 != digest:
            raise StokerError(
                f"{url}: {LISTING} and {MANIFEST} do not belong together ({name}); it is being published anew, or "
                "files of two corpora were mixed. Run the same command again; if it stays so, publish it anew"
            )
    return {name: files[name] for name in sorted(files, key=lambda name: (name == MANIFEST, name))}


def _digests_in(manifest: Any) -> dict[str, str]:
    """What a manifest itself says of the content of its corpus's files."""
    digests = {"tokenizer/tokenizer.json": str(manifest["tokenizer"]["sha256"])}
    for source in manifest["sources"]:
        for split in source["splits"].values():
            for shard in split["shards"]:
                digests[shard["file"]] = shard["sha256"]
                digests[str(PurePosixPath(shard["file"]).with_suffix(".documents"))] = shard["documents_sha256"]
    return digests


def _require_room(folder: Path, needed: int, url: str) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StokerError(
            f"the corpus at {url} does not fit on the disk of {folder.parent}: {needed / _GIGABYTE:,.3f} GB are to "
            f"be fetched, {free / _GIGABYTE:,.3f} GB are free; free some space, or let data.prepared_cache name "
            "another folder, and run the same command again"
        )


def _content(url: str, name: str) -> bytes | None:
    """A small file under `url`, None where there is none."""
    try:
        return b"".join(_chunks(f"{url.rstrip('/')}/{name}"))
    except FileNotFoundError:
        return None


def _chunks(url: str) -> Iterator[bytes]:
    """The bytes of a file. Raises `FileNotFoundError` where there is none, else `_Unreachable`."""
    with _explained(f"{url} could not be read"), RemoteFile(url, 0, None, None).open() as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


@contextmanager
def _explained(what: str, missing: bool = False) -> Iterator[None]:
    """Turn whatever a protocol raises into one line; that a file is `missing` only where asked."""
    try:
        yield
    except StokerError:
        raise
    except FileNotFoundError as error:
        if not missing:
            raise
        raise _Unreachable(f"{what}: {' '.join(str(error).split())} is not there") from error
    except Exception as error:  # each protocol has errors of its own
        told = " ".join(str(error).split())
        raise _Unreachable(f"{what}: {told or type(error).__name__}") from error


@contextmanager
def _alone(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of the one that fetches to `folder`, once every other process has let it go."""
    lock = folder.with_name(f".lock-fetch-{folder.name}")
    with explained_disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"waiting for another process that fetches {folder}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            with suppress(OSError):  # a file system without locks: files still appear whole
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
