"""A work folder whose files are not as they were written: nothing may be made of it."""

from __future__ import annotations

from pathlib import Path

from stoker.errors import StokerError


def spoilt(file: Path, work: Path, what: str) -> StokerError:
    """What to say of a file of a stage that was finished, in the folder `work` of a preparation."""
    return StokerError(
        f"{file}: {what}. What this preparation had done is damaged: delete {work}, then the same command "
        "begins anew"
    )
