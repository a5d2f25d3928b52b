"""Text to train models of quality on: read and cleaned as `prepare` does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.data.cleaning import clean
from stoker.data.content import CODE_SHARE, FORMULA_SHARE, content_of
from stoker.data.document import Document
from stoker.data.language.identification import CODE, identify
from stoker.data.reading.files import list_files
from stoker.data.reading.read import read_part
from stoker.data.reading.units import Part
from stoker.errors import BadInput
from stoker.progress import Progress
from stoker.recipe import Kind, Source

_LARGEST = 16 << 20
"""Bytes of a document, as in `data.cleaning.maximum_document_bytes`."""


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Which group of text a document is counted in: found out from the text, since files do not say it."""

    kind: Kind
    language: str
    """`unknown` where it has no letters; of code the language is `code`."""


def group_of(text: str) -> TextGroup:
    """The kind (code, mathematics or prose) and language that a text seems to be in."""
    content, label = content_of(text), identify(text).label or "unknown"
    if label == CODE or content.code >= CODE_SHARE * len(text):
        return TextGroup("code", CODE)
    return TextGroup("mathematics" if content.formula >= FORMULA_SHARE * len(text) else "prose", label)


def read_texts(paths: Sequence[Path], text_field: str, progress: Progress, task: str) -> Iterator[str]:
    """The cleaned texts of files and folders, in the order of their names; what cannot be read is left out.

    Raises `BadInput` where a path does not exist or holds nothing to read.
    """
    for path in paths:
        if not path.exists():
            raise BadInput(f"{task}: {path} does not exist; name files or folders of text")
    source = Source(name="text", paths=tuple(str(path.absolute()) for path in paths), text_field=text_field)
    files = list_files(source, Path.cwd())
    with progress.task(task, sum(file.path.stat().st_size for file in files), "bytes") as counter:
        for file in files:
            for found in read_part(source, Part(file), _LARGEST):
                if isinstance(found, Document) and (text := clean(found.text, found.kind)).strip():
                    yield text
            counter.advance(file.path.stat().st_size)


class TextDigest:
    """A SHA-256 over texts that pass by, and how many they were."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.documents, self.bytes = 0, 0

    def through(self, texts: Iterable[str]) -> Iterator[str]:
        """The same texts, counted."""
        for text in texts:
            encoded = text.encode()
            self._digest.update(hashlib.sha256(encoded).digest())
            self.documents, self.bytes = self.documents + 1, self.bytes + len(encoded)
            yield text

    def as_json(self) -> dict[str, int | str]:
        """As a plain dictionary."""
        return {"documents": self.documents, "bytes": self.bytes, "sha256": self._digest.hexdigest()}


def content_draw(text: str) -> float:
    """A number from 0 to 1 that the text alone decides, so that equal texts stand in one half."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def require_texts(count: int, least: int, what: str) -> None:
    """Raise `BadInput` where there are fewer than `least` texts."""
    if count < least:
        raise BadInput(
            f"{what}: {count} documents with text are too few to learn from; at least {least} are needed"
        )
