"""Writes `src/stoker/data/script/characters.txt` anew from the dictionaries of OpenCC (pip install opencc).

    python benchmarks/script_tables.py

OpenCC's dictionaries are under Apache-2.0. Only single characters are taken: conversion of text goes through
OpenCC itself, which knows phrases; the table is what folding and the detection of a script need.
"""

from __future__ import annotations

import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import opencc

_OUTCOME = Path(__file__).parents[1] / "src" / "stoker" / "data" / "script" / "characters.txt"
_PER_LINE = 24


def dictionary(name: str) -> dict[str, list[str]]:
    """A dictionary of OpenCC: each key with its values, the likeliest first."""
    folder = Path(opencc.__file__).parent / "clib"
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "text"
        source = folder / "share" / "opencc" / f"{name}.ocd2"
        subprocess.run(
            [folder / "bin" / "opencc_dict", "-i", source, "-o", text, "-f", "ocd2", "-t", "text"],
            check=True,
            capture_output=True,
        )
        rows = (line.split("\t") for line in text.read_text(encoding="utf-8").splitlines())
        return {key: values.split(" ") for key, values in rows}


def main() -> None:
    """Write the table."""
    simplified = {key: values[0] for key, values in dictionary("TSCharacters").items() if values[0] != key}
    also_simplified = {key for key, values in dictionary("TSCharacters").items() if key in values}
    traditional = dictionary("STCharacters")
    # Of one script alone: never the right form in the other, whatever the word.
    only_simplified = {key for key, values in traditional.items() if key not in values} - set(simplified)
    only_traditional = set(simplified) - also_simplified - set(traditional)
    pairs = [key + simplified[key] for key in sorted(simplified)]
    sections = {
        "pairs": [" ".join(pairs[at : at + _PER_LINE]) for at in range(0, len(pairs), _PER_LINE)],
        "simplified only": _rows(only_simplified),
        "traditional only": _rows(only_traditional),
    }
    lines = [
        f"# Made by benchmarks/script_tables.py from the dictionaries of OpenCC {version('opencc')} (Apache-2.0).",
        "# pairs: a traditional character and its simplified one. Then the characters of one script alone.",
    ]
    for name, rows in sections.items():
        lines += [f"[{name}]", *rows]
    _OUTCOME.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(pairs)} pairs, {len(only_simplified)} simplified only, {len(only_traditional)} traditional only")


def _rows(characters: set[str]) -> list[str]:
    row = sorted(characters)
    return ["".join(row[at : at + 3 * _PER_LINE]) for at in range(0, len(row), 3 * _PER_LINE)]


if __name__ == "__main__":
    main()
