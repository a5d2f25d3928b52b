"""Reading the files of a folder as a recipe's source would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stoker.data.document import Document, Fault
from stoker.data.reading.files import list_files
from stoker.data.reading.read import read_part
from stoker.data.reading.units import plan_units
from stoker.recipe import Source


def read_all(folder: Path, *paths: str, limit: int = 1 << 20, **settings: Any) -> list[Document | Fault]:
    """All documents and faults of `paths` (by default of the whole folder), in order."""
    source = Source.model_validate({"name": "s", "paths": paths or (".",), **settings})
    files = [(file, file.path.stat().st_size) for file in list_files(source, folder)]
    return [
        found
        for unit in plan_units([(source, files)])
        for part in unit.parts
        for found in read_part(source, part, limit)
    ]


def texts(found: list[Document | Fault]) -> list[str]:
    return [document.text for document in found if isinstance(document, Document)]


def faults(found: list[Document | Fault]) -> list[tuple[str, str]]:
    return [(fault.position, fault.reason) for fault in found if isinstance(fault, Fault)]
