"""Which runs a command line means: folders of runs, or folders that hold runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.errors import BadInput
from stoker.run_directory import RunDirectory

_LEVELS = 3


def runs_at(paths: Sequence[Path]) -> list[RunDirectory]:
    """The runs at `paths`, in order; of a folder that is no run, those inside it, the newest first.

    Raises `BadInput` where there is none.
    """
    found: dict[Path, RunDirectory] = {}
    for path in paths:
        for run in runs_below(path):
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


def runs_below(path: Path) -> list[RunDirectory]:
    """The run at `path`, or the runs inside it. Raises `BadInput` where there is none."""
    run = RunDirectory(path)
    if run.holds_run:
        return [run]
    if not path.is_dir():
        run.require_run()
    inside = sorted(_inside(path, _LEVELS), key=_changed, reverse=True)
    if not inside and run.recipe.is_file():
        run.require_run()
    if not inside:
        raise BadInput(
            f"{path} is no run and holds none (looked {_LEVELS} folders deep). `stoker train RECIPE` makes one."
        )
    return inside


def _inside(path: Path, levels: int) -> Iterator[RunDirectory]:
    try:
        entries = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return
    for entry in entries:
        run = RunDirectory(entry)
        if run.holds_run:
            yield run
        elif levels > 1:
            yield from _inside(entry, levels - 1)


def _changed(run: RunDirectory) -> float:
    try:
        return run.record.stat().st_mtime
    except OSError:
        return 0.0
