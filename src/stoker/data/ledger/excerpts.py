"""The text of documents in a ledger: of those that were kept from the corpus, of others from their files again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from stoker.data.corpus import Corpus
from stoker.errors import BadInput

if TYPE_CHECKING:  # text in the corpus is shown without loading what reading needs
    from stoker.data.document import Document
    from stoker.data.reading.files import InputFile
    from stoker.data.reading.units import Part
    from stoker.recipe import Source
    from stoker.recipe.loading import LoadedRecipe

_TOKENS_PER_CHARACTER = 4
"""At most: enough of a document is decoded for an excerpt, and no more."""
_LARGEST_READ = 1 << 30
"""Bytes of a document that is read without its recipe, which would say how large one may be."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """How a document begins, or why that cannot be told."""

    text: str | None
    missing: str | None
    """Why there is no text; None where there is."""


class Excerpts:
    """Reads how documents begin."""

    def __init__(self, corpus: Corpus, loaded: LoadedRecipe | None, characters: int | None) -> None:
        """`loaded` is the recipe whose sources hold the text; without it, only what was kept can be shown.

        Without `characters`, documents are read to their ends.
        """
        self._corpus, self._loaded, self._characters = corpus, loaded, characters
        self._files: dict[Source, dict[str, InputFile]] = {}
        self._tokenizer: Tokenizer | None = None

    def of(self, rows: Sequence[Mapping[str, Any]]) -> list[Excerpt]:
        """The excerpt of each row of a ledger; every file is read once."""
        found: dict[int, Excerpt] = {}
        by_file: dict[tuple[str, str], list[int]] = {}
        for place, row in enumerate(rows):
            if row["split"] is not None:
                found[place] = Excerpt(self._kept(row), None)
            elif row["verdict"] == "fault":
                found[place] = Excerpt(None, row["detail"])
            else:
                by_file.setdefault((row["source"], row["file"]), []).append(place)
        for (source, file), places in by_file.items():
            found.update(zip(places, self._read(source, file, [rows[place] for place in places]), strict=True))
        return [found[place] for place in range(len(rows))]

    def as_read(self, row: Mapping[str, Any]) -> Excerpt:
        """A document as it was read; where its file cannot tell any more, as it is in the corpus."""
        found = self._read(row["source"], row["file"], [row])[0]
        return Excerpt(self._kept(row), None) if found.text is None and row["split"] is not None else found

    def _kept(self, row: Mapping[str, Any]) -> str:
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.from_file(str(self._corpus.tokenizer_path))
        store = self._corpus.store(row["source"], row["split"])
        start = int(store.document_starts[row["document"]])
        length = int(store.document_lengths[row["document"]])
        if self._characters is not None:
            length = min(length, _TOKENS_PER_CHARACTER * self._characters)
        text: str = self._tokenizer.decode(store.read(start, start + length).tolist(), skip_special_tokens=True)
        return text.strip("\N{REPLACEMENT CHARACTER}")[: self._characters]

    def _read(self, source: str, file: str, rows: Sequence[Mapping[str, Any]]) -> list[Excerpt]:
        if self._loaded is None:
            return self._read_at_url(file, rows)
        own = next((one for one in self._loaded.recipe.data.sources if one.name == source), None)
        if own is None:
            return [Excerpt(None, f"the recipe has no source `{source}` any more")] * len(rows)
        try:
            found = self._file(own, self._loaded.folder, file)
        except BadInput as error:
            return [Excerpt(None, str(error))] * len(rows)
        if found is None:
            return [Excerpt(None, "the recipe does not name its file any more")] * len(rows)
        wanted = {row["position"] for row in rows}
        limit = self._loaded.recipe.data.cleaning.maximum_document_bytes
        texts: dict[str, str] = {}
        for document in _documents(own, found, wanted, limit):
            texts[document.position] = document.text
        return [self._checked(row, texts.get(row["position"])) for row in rows]

    def _read_at_url(self, file: str, rows: Sequence[Mapping[str, Any]]) -> list[Excerpt]:
        """Documents of a file of which only the recipe knows how it is read: as most are, and held against their
        digests."""
        if "://" not in file:
            missing = f"its text is in {file}, beside the recipe; name the recipe instead of the corpus to read it"
            return [Excerpt(None, missing)] * len(rows)
        by_digest: dict[str, str] = {}
        for source in _likely_sources(file, rows[0]):
            try:
                found = self._file(source, Path(), file)
                documents = (
                    []
                    if found is None
                    else _documents(source, found, {row["position"] for row in rows}, _LARGEST_READ)
                )
                by_digest |= {hashlib.sha256(one.text.encode()).hexdigest(): one.text for one in documents}
            except BadInput as error:
                return [Excerpt(None, str(error))] * len(rows)
            if all(row["sha256"] in by_digest for row in rows):
                break
        missing = (
            "its text cannot be told from its file alone: that has changed, or its source has settings that the "
            "recipe knows; name the recipe to read it"
        )
        texts = [by_digest.get(row["sha256"]) for row in rows]
        return [Excerpt(None, missing) if one is None else Excerpt(one[: self._characters], None) for one in texts]

    def _checked(self, row: Mapping[str, Any], text: str | None) -> Excerpt:
        if text is None:
            return Excerpt(None, "it is not in its file any more")
        if hashlib.sha256(text.encode()).hexdigest() != row["sha256"]:
            return Excerpt(None, "its file has changed since the corpus was prepared")
        return Excerpt(text[: self._characters], None)

    def _file(self, source: Source, folder: Path, name: str) -> InputFile | None:
        from stoker.data.reading.files import list_files

        if source not in self._files:
            self._files[source] = {file.name: file for file in list_files(source, folder)}
        return self._files[source].get(name)


def _likely_sources(file: str, row: Mapping[str, Any]) -> Iterator[Source]:
    """Sources as which the file of a row may have been read."""
    from stoker.recipe import Source

    by_line = str(row["position"]).startswith("line ")
    plain = Source(name=row["source"], kind=row["kind"], paths=(file,))
    if file.endswith(".py") and by_line:
        yield from (plain.model_copy(update={"extract": one}) for one in ("docstrings", "strings"))
    else:
        kinds = ("line", "paragraph") if by_line else ("file",)
        yield from (plain.model_copy(update={"documents": one}) for one in kinds)


def _documents(source: Source, file: InputFile, wanted: set[str], limit: int) -> Iterator[Document]:
    """The documents at the wanted positions of a file, read no further than needed."""
    from stoker.data.document import Document
    from stoker.data.reading.read import read_part

    left = set(wanted)
    for part in _parts(source, file, wanted):
        for found in read_part(source, part, limit):
            if isinstance(found, Document) and found.position in left:
                yield found
                left.discard(found.position)
                if not left:
                    return


def _parts(source: Source, file: InputFile, wanted: set[str]) -> Iterator[Part]:
    """The parts of a file that the wanted positions lie in: a large file is not parsed from its beginning."""
    from stoker.data.reading.units import plan_units

    try:
        size = file.path.stat().st_size
    except OSError:
        size = 0
    parts = [part for unit in plan_units([(source, [(file, size)])]) for part in unit.parts]
    last = [position.partition(", ")[0].rpartition(" ")[2] for position in wanted]  # before the address of a page
    numbers = [int(one) for one in last if one.isdigit()]
    if len(numbers) < len(wanted):
        yield from parts
        return
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        end = None if after is None else after.first_line
        if any(part.first_line <= number and (end is None or number < end) for number in numbers):
            yield part
