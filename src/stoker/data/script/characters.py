"""The table of Chinese characters that differ between the traditional and the simplified script.

Taken from the dictionaries of OpenCC (Apache-2.0; Carbo Kuo and others) by `benchmarks/script_tables.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True)
class Characters:
    """Characters by script."""

    simplified: dict[str, str]
    """Each traditional character's simplified one, the likeliest where there are several."""
    only_simplified: frozenset[str]
    """Characters that are not written in traditional text."""
    only_traditional: frozenset[str]
    """Characters that are not written in simplified text."""


@lru_cache(maxsize=1)
def script_characters() -> Characters:
    """The table, read once in each process."""
    sections: dict[str, list[str]] = {}
    text = files("stoker.data.script").joinpath("characters.txt").read_text(encoding="utf-8")
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            rows = sections.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            rows.append(line)
    pairs = " ".join(sections["pairs"]).split(" ")
    return Characters(
        {pair[0]: pair[1] for pair in pairs},
        frozenset("".join(sections["simplified only"])),
        frozenset("".join(sections["traditional only"])),
    )
