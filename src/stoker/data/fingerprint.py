"""What decides the bytes of a prepared corpus, in sixteen hexadecimal digits."""

from __future__ import annotations

import hashlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stoker.data.against import earlier_corpora
from stoker.data.corpus import FORMAT
from stoker.data.decontamination import evaluation_files
from stoker.data.file_stamp import NO_FILE, Stamp, last_moved, stamp_of
from stoker.data.reading.files import InputFile, list_files
from stoker.data.reading.open import Location
from stoker.data.reading.remote import RemoteFile
from stoker.durable_files import remove_partials, sha256_of_file, write_text
from stoker.errors import BadInput, StokerError
from stoker.progress import Progress
from stoker.recipe import Data, Source, Tokenizer
from stoker.recipe.loading import LoadedRecipe
from stoker.run_directory import locked_folder

RULES = 9
"""Version of how text becomes tokens: raised when reading, cleaning, filters or selection change what comes out, or
what is measured of it."""
HASHES_FILE = ".hashes.json"
_AFTER_READING = frozenset(("sources", "deduplication", "held_out", "shard_tokens", "tokenizer"))
"""Settings that change nothing of what one file is read as; a source's own are told apart for each."""
_DECIDES_NO_BYTE = {
    "workers",
    "worker_memory_gb",
    "worker_idle_seconds",
    "executor",
    "prepared",
    "prepared_cache",
    "reuse",
    "sources",  # told apart for each
    "mixture",
    "on_error",  # whether there is a corpus at all: looked at whenever one is opened
    "error_budget",
}
_EXTRACTORS = {
    "stoker": ("selectolax",),
    "trafilatura": ("trafilatura", "lxml", "justext"),
    "resiliparse": ("resiliparse",),
}
"""The libraries that decide what text comes out of a page, by `extraction`."""
_CHUNK = 1 << 20
_REQUESTS = 16
"""At a time, to ask after remote files."""
_HASHED_AT_ONCE = 1 << 12
"""Files that wait in the queue of the threads, each of which costs a kilobyte there."""
_SETTLED_SECONDS = 2.0
"""A file changed this recently may change again within the clock's tick: its hash is not remembered."""


@dataclass(frozen=True)
class Inputs:
    """The files of each source, and the fingerprint over them and the recipe."""

    files: list[tuple[Source, list[tuple[InputFile, int]]]]
    """For each source: its files with their size in bytes."""
    paths: list[Location]
    """Each file once."""
    stamps: dict[str, Stamp]
    """Of each path, to notice a file that changes while it is read."""
    fingerprint: str
    digests: dict[str, str]
    """Path to SHA-256 of each file, or a word where it cannot be read."""
    reading: dict[str, Any]
    """What decides, beside its source, how a file is read, cleaned and signed."""
    libraries: dict[str, str]
    """Versions of the libraries that decide what text comes out."""
    without_libraries: str
    """The fingerprint over everything but these."""


def take_inputs(loaded: LoadedRecipe, workers: int, progress: Progress) -> Inputs:
    """List and hash all input files. Hashes are remembered by path and stamp.

    Raises `BadInput` when a source has no files, or the given tokenizer is missing.
    """
    data = loaded.recipe.data
    listed = [(source, _not_ours(source, list_files(source, loaded.folder), loaded)) for source in data.sources]
    hashes = _Hashes(loaded.prepared_folder / HASHES_FILE)
    paths = list(dict.fromkeys(file.path for _, files in listed for file in files))
    digests = hashes.of(paths, workers, progress)
    identity = [[source.name, [[file.name, digests[str(file.path)]] for file in files]] for source, files in listed]
    sized = [(source, [(file, hashes.stamps[str(file.path)][0]) for file in files]) for source, files in listed]
    settings = _settings(data, loaded.recipe.tokenizer, loaded, progress)
    libraries = _libraries(data, listed)
    without = _fingerprint([FORMAT, RULES, settings, identity])
    settings["libraries"] = libraries
    fingerprint = _fingerprint([FORMAT, RULES, settings, identity])
    return Inputs(sized, paths, hashes.stamps, fingerprint, digests, _reading(settings), libraries, without)


def _fingerprint(content: list[Any]) -> str:
    written = json.dumps(content, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(written.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]


def _not_ours(source: Source, files: list[InputFile], loaded: LoadedRecipe) -> list[InputFile]:
    """Without prepared corpora of this recipe, where a source is a folder around them: each preparation would read
    the one before."""
    corpora = re.compile(re.escape(str(loaded.prepared_folder.absolute())) + "/(url-)?[0-9a-f]{16}/")
    left = [
        file for file in files if not (isinstance(file.path, Path) and corpora.match(str(file.path.absolute())))
    ]
    if not left:
        raise BadInput(
            f"data.sources[{source.name}]: {files[0].path} belongs to a corpus that this recipe made itself; name "
            "other text"
        )
    return left


def changed_files(inputs: Inputs) -> list[str]:
    """Files that are not any more what they were when they were hashed.

    One of which only rights or links changed has another stamp and the same content: it is hashed again.
    """
    here = [path for path in inputs.paths if isinstance(path, Path)]
    remote = [path for path in inputs.paths if isinstance(path, RemoteFile)]
    with ThreadPoolExecutor(_REQUESTS) as threads:
        now = dict(zip(map(str, remote), threads.map(_stamp_now, remote), strict=True))
    now |= {str(path): _stamp(path) for path in here}
    moved = [path for path in inputs.paths if now[str(path)] != inputs.stamps[str(path)]]
    return [
        str(path)
        for path in moved
        if now[str(path)][:2] != inputs.stamps[str(path)][:2] or _digest(path) != inputs.digests[str(path)]
    ]


def _settings(data: Data, tokenizer: Tokenizer, loaded: LoadedRecipe, progress: Progress) -> dict[str, Any]:
    """The parts of the recipe that decide the bytes: not the workers, the weights or the folder."""
    settings = data.model_dump(mode="json", exclude=_DECIDES_NO_BYTE)
    settings["sources"] = [source.model_dump(mode="json", exclude={"weight"}) for source in data.sources]
    settings["deduplication"]["against"] = [corpus.fingerprint for corpus in earlier_corpora(loaded, progress)]
    evaluation = evaluation_files(data.cleaning.decontaminate, loaded.folder)
    settings["evaluation"] = [_digest(file.path) for file in evaluation]
    for judge, section in (("quality", data.cleaning.quality), ("perplexity", data.cleaning.perplexity)):
        if section.model is not None:
            settings["cleaning"][judge]["model"] = _model_digest(loaded.resolve(section.model), judge)
    settings["tokenizer"] = tokenizer.model_dump(mode="json")
    if tokenizer.path is not None:
        path = loaded.resolve(tokenizer.path)
        if not path.is_file():
            raise BadInput(f"tokenizer.path: {path} does not exist; correct it, or leave it out to train one")
        settings["tokenizer"] = {
            "sha256": sha256_of_file(path),
            **tokenizer.model_dump(mode="json", include={"add_bos", "add_eos", "bos_token", "eos_token"}),
        }
    return settings


def _libraries(data: Data, listed: list[tuple[Source, list[InputFile]]]) -> dict[str, str]:
    """Versions of the libraries that decide what text comes out; of extractors only where there are pages."""
    names = {"charset-normalizer"}
    for source, files in listed:
        if any(file.format in ("html", "warc") for file in files):
            names.update(_EXTRACTORS[source.extraction])
    if data.cleaning.script != "keep":
        names.add("opencc")
    versions = {}
    for name in sorted(names):
        with suppress(PackageNotFoundError):  # what needs it says so
            versions[name] = version(name)
    return versions


def _reading(settings: dict[str, Any]) -> dict[str, Any]:
    signing = {name: settings["deduplication"][name] for name in ("shingle_size", "permutations")}
    reading = {name: given for name, given in settings.items() if name not in _AFTER_READING}
    return {"signing": signing, **reading, "cleaning": _without_shares(settings["cleaning"])}


def _without_shares(cleaning: dict[str, Any]) -> dict[str, Any]:
    """Settings of cleaning but for the shares that selection drops."""
    judged = {
        judge: {name: given for name, given in cleaning[judge].items() if name not in shares}
        for judge, shares in (("quality", {"keep_best"}), ("perplexity", {"drop_lowest", "drop_highest"}))
    }
    return cleaning | judged


def _model_digest(path: Path, judge: str) -> str:
    if not path.is_file():
        raise BadInput(f"data.cleaning.{judge}.model: {path} does not exist; docs/quality.md says how to train one")
    return sha256_of_file(path)


def _stamp_now(file: RemoteFile) -> Stamp:
    try:
        return _stamp(file.as_it_is_now())
    except OSError:
        return NO_FILE


def _stamp(path: Location) -> Stamp:
    try:
        return stamp_of(path.stat())
    except OSError:
        return NO_FILE


class _Hashes:
    def __init__(self, remembered: Path) -> None:
        self._file = remembered
        self.stamps: dict[str, Stamp] = {}

    def of(self, paths: list[Location], workers: int, progress: Progress) -> dict[str, str]:
        """SHA-256 of each file; a file that cannot be read gets a word instead."""
        known = self._read()
        fresh: dict[str, str] = {}
        missing: list[Location] = []
        self.stamps = {str(path): _stamp(path) for path in paths}
        for path in paths:
            entry = known.get(str(path))
            if isinstance(entry, list) and len(entry) == 5 and entry[:4] == list(self.stamps[str(path)]):
                fresh[str(path)] = entry[4]
            else:
                missing.append(path)
        if missing:
            total = sum(self.stamps[str(path)][0] for path in missing)
            with progress.task("check the input", total, "bytes") as task, ThreadPoolExecutor(workers) as threads:
                for first in range(0, len(missing), _HASHED_AT_ONCE):
                    batch = missing[first : first + _HASHED_AT_ONCE]
                    for path, digest in zip(batch, threads.map(_digest, batch), strict=True):
                        fresh[str(path)] = digest
                        task.advance(self.stamps[str(path)][0])
            self._remember(known, fresh)
        return fresh

    def _read(self) -> dict[str, Any]:
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return known if isinstance(known, dict) else {}

    def _remember(self, known: dict[str, Any], fresh: dict[str, str]) -> None:
        now = time.time_ns()
        for path, digest in fresh.items():
            stamp = self.stamps[path]
            if now - last_moved(stamp) > _SETTLED_SECONDS * 1e9 and digest != "unreadable":
                known[path] = [*stamp, digest]
        folder = self._file.parent
        # Two preparations may end at once, and a corpus may be looked into where nothing can be written: then less
        # is remembered.
        with (
            suppress(StokerError, OSError),
            locked_folder(folder, folder / f".lock{HASHES_FILE}", "remembering hashes"),
        ):
            remove_partials(folder)
            write_text(self._file, json.dumps(known))


def _digest(path: Location) -> str:
    if isinstance(path, RemoteFile) and path.content_mark is not None:
        return f"{path.size} bytes marked {path.content_mark}"
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()
    except OSError:
        return "unreadable"
