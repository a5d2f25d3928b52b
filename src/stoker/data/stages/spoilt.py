"""A work folder whose files are not as they were written: nothing may be made of it."""

from __future__ import annotations

from pathlib import Path

from stoker.errors import StokerError
from stoker.plural import counted


def spoilt(file: Path, work: Path, what: str) -> StokerError:
    """What to say of a file of a stage that was finished, in the folder `work` of a preparation."""
    return StokerError(
        f"{file}: {what}. What this preparation had done is damaged: delete {work}, then the same command "
        "begins anew"
    )


def require_size(file: Path, expected: int, work: Path) -> None:
    """Raise `StokerError` where a file of a finished stage is missing or has not as many bytes as were written."""
    try:
        found = file.stat().st_size
    except FileNotFoundError:
        raise spoilt(file, work, "it is missing") from None
    if found != expected:
        raise spoilt(file, work, f"{counted(expected, 'bytes')} expected, found {found:,}")
