"""What is wrong with all of a source shows in its first document: told before anything else is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from stoker.data.document import Fault
from stoker.data.reading.files import InputFile, list_files
from stoker.data.reading.read import read_part
from stoker.data.reading.remote import RemoteFile
from stoker.data.reading.units import Part
from stoker.errors import BadInput
from stoker.recipe import Data, Source
from stoker.recipe.files import names_fields

_WITH_FIELDS = ("jsonl", "parquet")
_OF_THE_FIELD = ("no_text_field", "wrong_type")
_REMEDIES = {
    **dict.fromkeys(_OF_THE_FIELD, "Let `text_field` of the source name the field that holds the text, or"),
    "undecodable": "Or",
}
_REPAIR = "Repair it, or"


def require_text_fields(sources: Iterable[tuple[Source, Sequence[InputFile]]], maximum_bytes: int) -> None:
    """Raises `BadInput` where the first document of a source has no text under `text_field`, or no text there.

    Of each source the first file with fields (JSON lines, Parquet) on this machine is looked at.
    """
    for source, files in sources:
        own = (file for file in files if file.format in _WITH_FIELDS and not isinstance(file.path, RemoteFile))
        for file in islice(own, 1):
            for found in islice(read_part(source, Part(file), maximum_bytes), 1):
                if isinstance(found, Fault) and found.reason in _OF_THE_FIELD:
                    raise BadInput(stopped_by(found))


def require_named_fields(data: Data, folder: Path) -> None:
    """The same for the sources whose `paths` name such files, and not only folders that may hold some.

    `folder` is where the recipe lies. Nothing is asked of servers, nor where `data.on_error` passes faults over.
    """
    if data.on_error != "stop" or data.corpus is not None:
        return
    named = [source for source in data.sources if names_fields(source)]
    require_text_fields(
        ((source, list_files(source, folder)) for source in named), data.cleaning.maximum_document_bytes
    )


def stopped_by(fault: Fault) -> str:
    """Why a preparation under `data.on_error: stop` ends at a fault, and what to do."""
    remedy = _REMEDIES.get(fault.reason, _REPAIR)
    return (
        f"data.sources[{fault.source}]: {fault.file}, {fault.position}: {fault.reason}: {fault.detail}. "
        f"{remedy} let data.on_error be `skip` to count such places and go on, up to data.error_budget"
    )
