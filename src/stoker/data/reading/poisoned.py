"""What a library makes of a document that it cannot take: named, and no end of anything else."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

POISONED = "poisoned"
"""The reason of what ends the worker process that works on it, or makes an operator or an extractor fail."""
_LONGEST_DETAIL = 400

Begin = Callable[[str, int], str | None]
"""`begin(position, size)`: told before a document of so many bytes is taken out of what holds it, where what comes
behind it can be read without. Why that must not be done, as it ended workers before; None where it may."""


def begin_anything(position: str, size: int) -> str | None:
    """Nothing is known to be poison."""
    return None


def failure(error: Exception) -> str:
    """What failed, and in which function."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].name} ({Path(frames[-1].filename).name})" if frames else ""
    return f"{type(error).__name__}{where}: {error}"[:_LONGEST_DETAIL]
