"""The text that `stoker recipe new` is given, where it is plain and little enough to be looked at as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PLAIN = (".txt", ".md")
_LINES = (".jsonl",)
_MOST_BYTES = 8_000_000
_MOST_FILES = 2000


def files_in(path: Path) -> Iterator[Path]:
    """The files of a source: the file itself, or those under the folder, hidden ones left out."""
    if not path.is_dir():
        yield path
        return
    for parent, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent) / name for name in sorted(names) if not name.startswith("."))


def as_utf8(content: bytes) -> str:
    """What of the bytes is UTF-8."""
    return content.decode("utf-8", errors="ignore")


def whole_text(data: Sequence[Path], decoded: Callable[[bytes], str] = as_utf8) -> list[str] | None:
    """The texts in `data`, each once; None where they are more than 8 MB or kept otherwise than as text or JSON
    lines, so that nothing is known of them without preparing them."""
    texts: dict[str, None] = {}
    read = files = 0
    for path in data:
        for file in files_in(path):
            files += 1
            read += file.stat().st_size
            if file.suffix.lower() not in PLAIN + _LINES or read > _MOST_BYTES or files > _MOST_FILES:
                return None
            content = decoded(file.read_bytes())
            texts |= dict.fromkeys(_of_lines(content) if file.suffix.lower() in _LINES else [content])
    return list(texts)


def _of_lines(content: str) -> Iterator[str]:
    for line in content.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # `prepare` names it
        text = row.get("text") if isinstance(row, dict) else None
        if isinstance(text, str):
            yield text
