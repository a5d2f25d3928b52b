"""Ready-made shapes: small ones to try things with, and published ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A named shape: field values of `model`, the vocabulary it was published with, and where."""

    shape: dict[str, Any]
    published_vocabulary: int
    source: str


PRESETS: dict[str, Preset] = {}
