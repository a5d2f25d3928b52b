"""What every commit draws anew."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Thing = TypeVar("Thing")


def commit_number() -> int:
    """A number that changes with every commit; 0 where there is no repository."""
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(asked.stdout.strip()[:8], 16) if asked.returncode == 0 else 0


def drawn(things: Sequence[Thing], count: int) -> list[Thing]:
    """`count` of `things`."""
    return random.Random(commit_number()).sample(list(things), count)
