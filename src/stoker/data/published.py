"""Prepared corpora under a URL, as `publishing` puts them there: fetched once into a folder of this machine.

A fetched corpus becomes `<folder>` by one rename. Until then its files stand in `.fetch-<name>` beside it, each
whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from stoker.data.corpus import MANIFEST
from stoker.data.imported import FETCHED
from stoker.data.place_of_url import LISTING, Unreachable, alone, chunks_of, content_at, explained, is_url
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

_GIGABYTE = 1e9


class _Published(NamedTuple):
    bytes: int
    sha256: str


def url_in(prepared: str, fingerprint: str) -> str | None:
    """Where a corpus is published under `data.prepared`; None where that is a folder of this machine."""
    return f"{prepared.rstrip('/')}/{fingerprint}" if is_url(prepared) else None


def folder_of_url(parent: Path, url: str) -> Path:
    """Where in `parent` the corpus at `url` is kept: a name that the URL alone decides."""
    return parent / f"{FETCHED}{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:16]}"


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
            manifest = content_at(url, MANIFEST, progress)
        except Unreachable as error:
            progress.say(f"{error}. What was fetched before is used: {folder}")
            return True
        if manifest is not None and manifest != (folder / MANIFEST).read_bytes():
            raise BadInput(
                f"the corpus at {url} is another than the one that is kept of it in {folder}; delete that "
                "folder to fetch it anew (runs that were trained on it need it as it is), or delete that at the URL"
            )
        return True
    manifest = content_at(url, MANIFEST, progress)
    if manifest is None:
        return False
    lock = folder.with_name(f".lock-fetch-{folder.name}")
    with alone(lock, progress, f"waiting for another process that fetches {folder}"):
        if not is_here(folder):  # another process may just have fetched it
            _fetch(url, manifest, folder, progress)
    return True


def _fetch(url: str, manifest: bytes, folder: Path, progress: Progress) -> None:
    files = _listed(url, manifest, progress)
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
    with explained(f"{url} could not be fetched", missing=True), durable_file(into) as stream:
        for chunk in chunks_of(url):
            digest.update(chunk)
            stream.write(chunk)
        if digest.hexdigest() != published.sha256:
            raise StokerError(
                f"{url}: its content is not what was published: SHA-256 {published.sha256} expected, found "
                f"{digest.hexdigest()} in {counted(stream.tell(), 'bytes')} of {published.bytes:,}. Run the same "
                "command again; if it stays so, publish the corpus anew"
            )


def _listed(url: str, manifest: bytes, progress: Progress) -> Mapping[str, _Published]:
    """Files of the corpus at `url`, the manifest last. Raises `StokerError` where listing and manifest differ."""
    content = content_at(url, LISTING, progress)
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
