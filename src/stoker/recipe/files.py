"""Whether the files that a recipe names are there: looked at only where someone asks, not whenever it is read."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stoker.recipe.fields import Place, dotted
from stoker.recipe.regular import is_regular, kernel_devices
from stoker.recipe.source import Source
from stoker.recipe.yaml_text import Mistake

_WITH_FIELDS = ("jsonl", "parquet")


def missing_files(tree: Any, folder: Path, locate: Callable[[Place], str]) -> list[Mistake]:
    """What a recipe's sources and tokenizer name that is not there. `tree` may have other mistakes as well."""
    found = []
    for place, written in _named_paths(tree):
        if "://" in written.removeprefix("file://"):
            continue  # nobody asks a server whenever a recipe is read
        path = folder / Path(written.removeprefix("file://")).expanduser()
        if place[0] == "tokenizer" or place[-1] == "model":
            wrong = None if is_regular(path) else f"there is no file {path}"
        else:
            wrong = None if _has_files(path) else f"{path} {why_nothing(path)}"
        if wrong is not None:
            found.append(Mistake(locate(place), dotted(place), wrong))
    return found


def names_fields(source: Source) -> bool:
    """Whether the paths of a source name files of this machine that have fields: JSON lines, Parquet."""
    if not source.paths or any("://" in path.removeprefix("file://") for path in source.paths):
        return False
    return source.format in _WITH_FIELDS or any(
        f".{form}" in Path(path).name for path in source.paths for form in _WITH_FIELDS
    )


def why_nothing(path: Path) -> str:
    """Why a file, folder or glob of a source holds nothing to read, and what to do."""
    if path.is_dir():
        if path.stat().st_dev in kernel_devices():
            return "holds no files of its own but answers of the kernel; name another folder"
        return "is an empty folder (hidden files do not count); put text there or correct the path"
    if path.exists():
        if path.is_file():
            return "is no file of its own but an answer of the kernel; give a regular file"
        return "is neither a file nor a folder; give a regular file"
    if glob.has_magic(str(path)):
        return "matches no file; correct the pattern (it is relative to the recipe)"
    return "does not exist; correct the path (it is relative to the recipe)"


def _named_paths(tree: Any) -> Iterator[tuple[Place, str]]:
    sections = tree if isinstance(tree, dict) else {}
    data, tokenizer = sections.get("data"), sections.get("tokenizer")
    if isinstance(data, dict) and isinstance(data.get("corpus"), str):
        yield ("data", "corpus"), data["corpus"]  # nothing else is read
        return
    sources = data.get("sources") if isinstance(data, dict) else None
    for number, source in enumerate(sources if isinstance(sources, list) else []):
        paths = source.get("paths") if isinstance(source, dict) else None
        for position, written in enumerate(paths if isinstance(paths, list) else []):
            if isinstance(written, str):
                yield ("data", "sources", number, "paths", position), written
    cleaning = data.get("cleaning") if isinstance(data, dict) else None
    evaluation = cleaning.get("decontaminate") if isinstance(cleaning, dict) else None
    paths = evaluation.get("paths") if isinstance(evaluation, dict) else None
    for position, written in enumerate(paths if isinstance(paths, list) else []):
        if isinstance(written, str):
            yield ("data", "cleaning", "decontaminate", "paths", position), written
    deduplication = data.get("deduplication") if isinstance(data, dict) else None
    against = deduplication.get("against") if isinstance(deduplication, dict) else None
    for position, written in enumerate(against if isinstance(against, list) else []):
        if isinstance(written, str):
            yield ("data", "deduplication", "against", position), written
    for judge in ("quality", "perplexity"):
        section = cleaning.get(judge) if isinstance(cleaning, dict) else None
        model = section.get("model") if isinstance(section, dict) else None
        if isinstance(model, str):
            yield ("data", "cleaning", judge, "model"), model
    given = tokenizer.get("path") if isinstance(tokenizer, dict) else None
    if isinstance(given, str):
        yield ("tokenizer", "path"), given


def _has_files(path: Path) -> bool:
    if not path.is_dir():
        if path.exists():
            return is_regular(path)
        return any(True for _ in glob.iglob(str(path), recursive=True))  # noqa: PTH207, patterns may be absolute
    for parent, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if (Path(parent) / name).is_symlink()]  # not followed: it may be a loop
        if linked or any(not name.startswith(".") for name in names):
            return True
    return False
