"""Reads evaluation sets, with the readers of every other source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from stoker.data import normal_form
from stoker.data.decontamination import tables
from stoker.data.decontamination.index import EvaluationIndex
from stoker.data.decontamination.store import shared_tables
from stoker.data.document import Fault
from stoker.data.file_stamp import Stamp, stamp_of
from stoker.data.reading.files import InputFile, list_files
from stoker.data.reading.read import read_part
from stoker.data.reading.units import Part
from stoker.errors import BadInput
from stoker.recipe import Source
from stoker.recipe.decontamination import Decontamination

_WHERE = "data.cleaning.decontaminate"
_LARGEST_ITEM = 1 << 24


def evaluation_files(settings: Decontamination, folder: Path) -> list[InputFile]:
    """The files of the evaluation sets; `folder` is where the recipe lies.

    Raises `BadInput` when a path is missing or matches nothing.
    """
    if not settings.paths:
        return []
    try:
        return list_files(_source(settings, settings.fields[0]), folder)
    except BadInput as error:
        raise BadInput(str(error).replace("data.sources[evaluation]", f"{_WHERE}.paths")) from None


def evaluation_index(settings: Decontamination) -> EvaluationIndex:
    """The index of the items of `settings.paths`, which are absolute; made once on each machine.

    Raises `BadInput` at the first item that cannot be read.
    """
    files = evaluation_files(settings, Path("/"))
    stamps = tuple(stamp_of(file.path.stat()) for file in files)
    return _made(settings, stamps)


@lru_cache(maxsize=1)
def _made(settings: Decontamination, stamps: tuple[Stamp, ...]) -> EvaluationIndex:
    code = b"".join(Path(str(module.__file__)).read_bytes() for module in (tables, normal_form))
    # What an item is called and how it is found depends on no more than this.
    decides = settings.model_copy(update={"action": "drop"}).model_dump_json()
    state = hashlib.sha256(f"{decides} {stamps}".encode() + code).hexdigest()[:16]
    return EvaluationIndex(
        shared_tables(state, lambda: tables.tables_of(_items(settings), settings.ngram, settings.ngram_characters))
    )


def _source(settings: Decontamination, field: str) -> Source:
    return Source(name="evaluation", paths=settings.paths, text_field=field, documents="line")


def _items(settings: Decontamination) -> Iterator[tuple[str, str]]:
    for file in evaluation_files(settings, Path("/")):
        with_fields = file.format in ("jsonl", "parquet")
        for field in settings.fields if with_fields else settings.fields[:1]:
            for found in read_part(_source(settings, field), Part(file), _LARGEST_ITEM):
                if isinstance(found, Fault):
                    raise BadInput(f"{_WHERE}: {file.path}, {found.position}: {found.reason}: {found.detail}")
                where = f"{file.path.name} {found.position}"
                yield (f"{where}, {field}" if with_fields else where), found.text
