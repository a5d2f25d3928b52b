"""A part of a file to documents and faults: the one door to all formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stoker.data.document import Document, Fault
from stoker.data.reading.decoding import Undecodable
from stoker.data.reading.files import InputFile
from stoker.data.reading.open import Damaged
from stoker.data.reading.poisoned import Begin, begin_anything
from stoker.data.reading.units import Part
from stoker.recipe import Source

LONGEST_ADDRESS = 500
"""Characters of the address of a page that are kept."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader needs to know: whose file, which file, how large a document may be."""

    source: Source
    file: InputFile
    maximum_bytes: int
    begin: Begin = begin_anything

    def document(
        self, position: str, text: str, identifier: str | None = None, address: str | None = None
    ) -> Document | Fault:
        """A document of this file, or a fault when it is larger than allowed or holds no real text.

        The `address` of the page that it was taken from comes behind its position, where it can be shown.
        """
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            surrogate = text[error.start].encode("utf-16-be", "surrogatepass").hex()
            detail = f"character {error.start} is half of a pair (\\u{surrogate}), which is no text"
            return self.fault(position, "undecodable", detail)
        if size > self.maximum_bytes:
            return self.too_large(position, size)
        if identifier is None:
            number = position.rpartition(" ")[2]
            identifier = f"{self.file.name}:{number}" if number.isdigit() else self.file.name
        if address is not None and address.isprintable() and " " not in address:
            position = f"{position}, {address[:LONGEST_ADDRESS]}"
        source = self.source
        return Document(source.name, source.kind, source.language, identifier, self.file.name, position, text)

    def passed_over(self, position: str, reason: str, detail: str, identifier: str | None) -> Document | Fault:
        """What is no document that is wanted: of it the ledger has the reason and no text."""
        found = self.document(position, "", identifier)
        return replace(found, passed_over=reason, detail=detail) if isinstance(found, Document) else found

    def fault(self, position: str, reason: str, detail: str) -> Fault:
        """A fault at a place of this file."""
        return Fault(self.source.name, self.file.name, position, reason, detail)

    def too_large(self, position: str, size: int | None) -> Fault:
        """The fault of a document over the limit; `size` is in bytes, None when the end was not looked for."""
        found = f"more than {self.maximum_bytes}" if size is None else str(size)
        return self.fault(
            position,
            "too_large",
            f"{found} bytes, over data.cleaning.maximum_document_bytes ({self.maximum_bytes}); "
            "raise it, or let `documents` be `line` or `paragraph`",
        )


def read_part(
    source: Source, part: Part, maximum_bytes: int, begin: Begin = begin_anything
) -> Iterator[Document | Fault]:
    """Documents and faults of a part of a file, in the file's order. Never raises for what the file holds, but what
    an extractor raises for a file that is one page."""
    from stoker.data.reading import jsonl, parquet, text, warc, whole

    reading = Reading(source, part.file, maximum_bytes, begin)
    readers = {"jsonl": jsonl.read, "parquet": parquet.read, "html": whole.read, "code": whole.read}
    reader = {**readers, "warc": warc.read}.get(part.file.format, text.read)
    try:
        nothing = True
        for found in reader(reading, part):
            nothing = False
            yield found
        if nothing and part.is_whole_file and source.extract == "whole":
            # Counted and named like an empty document: nobody should wonder what became of the file.
            yield reading.document("file", "")
    except Damaged as error:
        yield reading.fault(f"byte {error.byte}", error.reason, error.detail)
    except Undecodable as error:
        yield reading.fault(f"byte {error.byte}", error.reason, error.detail)
    except OSError as error:
        yield reading.fault("file", "unreadable", error.strerror or str(error))
