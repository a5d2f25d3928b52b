"""The files of a source, in an order that is the same everywhere."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stoker.data.extraction.engines import require_engine
from stoker.data.reading import remote
from stoker.data.reading.globs import find, matches, walk
from stoker.data.reading.open import COMPRESSED, Location
from stoker.data.reading.packages import package_folder
from stoker.data.reading.source_code import VENDORED_FOLDERS, is_source_file
from stoker.errors import BadInput
from stoker.recipe import Source
from stoker.recipe.files import why_nothing

Format = Literal["text", "jsonl", "parquet", "html", "warc", "code"]


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read."""

    path: Location
    name: str
    """As shown to the user and kept in the ledger: relative to the recipe, a URL, or `package:path`."""
    format: Format


def list_files(source: Source, folder: Path) -> list[InputFile]:
    """All files of a source, each once, in the order of its `paths` or `packages` and then by name.

    `folder` is where the recipe lies. Raises `BadInput` naming the source and the path when a path is
    missing, a folder holds nothing to read, or a glob matches nothing.
    """
    if source.encoding is not None:
        _require_encoding(source)
    require_engine(source.extraction, f"data.sources[{source.name}].extraction")
    files = _listed_paths(source, folder) if source.paths else _listed_packages(source)
    unique = {file.path: file for file in reversed(files)}
    return [file for file in files if unique.pop(file.path, None) is not None]


def _listed_paths(source: Source, folder: Path) -> list[InputFile]:
    files: list[InputFile] = []
    for written in source.paths:
        if remote.is_remote(written):
            files += _listed_remote(source, written)
            continue
        pattern = str(Path(written.removeprefix("file://")).expanduser())
        where = f"data.sources[{source.name}]: {folder / pattern}"
        try:
            skip = VENDORED_FOLDERS if source.format == "code" else frozenset({"__pycache__"})
            found = find(folder, pattern, skip)
        except PermissionError as error:
            raise BadInput(f"{where}: no permission to list {error.filename}") from None
        if not found:
            raise BadInput(f"{where} {why_nothing(folder / pattern)}")
        if source.format == "code" and not (len(found) == 1 and found[0] == folder / pattern):
            found = [path for path in found if is_source_file(path.name)]
            if not found:
                raise BadInput(f"{where} holds no source code (files such as .py, .c, .js); check `format`")
        files += [InputFile(path, _shown(path, pattern, folder), _format_of(source, path)) for path in found]
    return files


def _listed_remote(source: Source, url: str) -> list[InputFile]:
    where = f"data.sources[{source.name}]: {url}"
    found = remote.find(url, where)
    if source.format == "code" and [file.url for file in found] != [url]:
        found = [file for file in found if is_source_file(file.name)]
    if not found:
        raise BadInput(f"{where} names no file that is there; correct the address, or look at who may read it")
    return [InputFile(file, file.url, _format_of(source, file)) for file in found]


def _listed_packages(source: Source) -> list[InputFile]:
    files: list[InputFile] = []
    for wanted in source.packages:
        root = package_folder(wanted.package, source.name)
        names = list(walk(root, frozenset({"__pycache__", "site-packages", "dist-packages"})))
        excluded = [matches(pattern) for pattern in wanted.exclude]
        for pattern in wanted.files:
            expression = matches(pattern)
            found = [name for name in names if expression.match(name) and not any(e.match(name) for e in excluded)]
            if not found:
                raise BadInput(
                    f"data.sources[{source.name}]: the package `{wanted.package}` has no file that matches "
                    f"`{pattern}` (in {root}); correct `files` or `exclude`"
                )
            files += [
                InputFile(root / name, f"{wanted.package}:{name}", _format_of(source, root / name))
                for name in found
            ]
    return files


def _shown(path: Path, pattern: str, folder: Path) -> str:
    shown, below = str(path), f"{folder}{os.sep}"
    if not Path(pattern).is_absolute():
        # What `relpath` does in many steps for one file; there may be millions.
        inside = shown.startswith(below) and ".." not in pattern
        shown = shown.removeprefix(below) if inside else os.path.relpath(path, folder)
    # A name that is no text (it happens on Linux) must still be printable and storable.
    return os.fsencode(shown).decode("utf-8", errors="replace").replace(os.sep, "/")


def _format_of(source: Source, path: Location) -> Format:
    if source.format != "auto":
        return source.format
    if source.extract != "whole":
        return "code"
    name = path.name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.endswith((".html", ".htm", ".xhtml")):
        return "html"
    if name.endswith((".warc", ".wet")):
        return "warc"
    return "code" if is_source_file(name) else "text"


def _require_encoding(source: Source) -> None:
    encoding, letters = source.encoding or "utf-8", "text"
    try:
        # Python also calls `hex` and `undefined` encodings; what they make is no text.
        known = letters.encode(encoding).decode(encoding) == letters
    except (LookupError, UnicodeError, ValueError, TypeError):
        known = False
    if not known:
        raise BadInput(
            f"data.sources[{source.name}].encoding: `{source.encoding}` is no known encoding of text; "
            "use one such as utf-8, gb18030, big5, utf-16, or leave it out to have it detected"
        )
