"""Which checkpoints of a run there are: in its own folder, or where `checkpoint.folder` says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import BadInput
from stoker.run_directory import RunDirectory

_NAME = re.compile(r"step-(\d{8,})(-[0-9a-f]{8})?")
_MARKER = "committed"


@dataclass(frozen=True)
class SavedCheckpoint:
    """One checkpoint that is still there."""

    name: str
    step: int
    bytes: int
    saved: float | None
    """Unix time; None where a store does not tell."""


def saved_checkpoints(
    run: RunDirectory, folder: object, note: Callable[[str], None]
) -> tuple[str, list[SavedCheckpoint]]:
    """Where the checkpoints of `run` are, and they, oldest first.

    `folder` is what the recipe says. What cannot be listed is told to `note`.
    """
    where = folder if isinstance(folder, str) else str(run.checkpoints)
    try:
        if "://" in where and not where.startswith("file://"):
            return where, _in_store(where)
        return where, _in_folder(Path(where.removeprefix("file://")))
    except BadInput as error:
        note(f"The checkpoints cannot be listed: {error}")
    except Exception as error:  # whatever a store's own package raises
        note(f"The checkpoints in {where} cannot be listed: {type(error).__name__}: {error}")
    return where, []


def _in_folder(folder: Path) -> list[SavedCheckpoint]:
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if match := _NAME.fullmatch(path.name):
            try:
                size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                found.append(SavedCheckpoint(path.name, int(match[1]), size, path.stat().st_mtime))
            except OSError:  # deleted by the retention of a run that goes on
                continue
    return found


def _in_store(url: str) -> list[SavedCheckpoint]:
    from stoker.checkpoint.place import ObjectFolder, place  # takes seconds, and only stores need it

    folder = place(url)
    assert isinstance(folder, ObjectFolder)
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if (match := _NAME.fullmatch(path.name)) and (path / _MARKER).exists():
            size = sum(file.stat().st_size for file in path.iterdir())
            found.append(SavedCheckpoint(path.name, int(match[1]), size, (path / _MARKER).changed()))
    return found
