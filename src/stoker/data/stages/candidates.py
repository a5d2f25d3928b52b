"""The documents that reading, cleaning and filters left over, in order: what later stages choose from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stoker.data.deduplication.edits import Edits
from stoker.data.deduplication.stored_rows import stored_rows
from stoker.data.ledger.hashing import hashes_of
from stoker.data.ledger.schema import MEASURE
from stoker.data.minhash import Hashes
from stoker.data.reading.units import Unit
from stoker.data.stages.read_and_clean import read_histories, unit_file
from stoker.data.stages.spoilt import require_size
from stoker.errors import BadInput
from stoker.recipe import Deduplication, Kind

Integers = npt.NDArray[np.int64]
_Text = TypeVar("_Text")
_HOST = r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(?:[Ww]{3}\.)?(?P<host>[^/?#:]+)"
"""An address up to its host: one with `www.` and one without are the same."""
_DIGEST = 32
_DRAWN = 8
"""Bytes of a digest that are read as a number."""
_NOTHING = np.empty(0, np.uint8)
_PAGES = 1 << 16
"""What the system maps where one byte is touched."""
_TOUCHED_BYTES = 1 << 28


class Candidates:
    """Kept documents of all units, numbered from 0 in the order of sources, files and positions."""

    def __init__(self, folder: Path, units: Sequence[Unit]) -> None:
        self._folder, self._units = folder, units
        self._sizes: list[Integers] = []
        characters: list[Integers] = []
        source_of_unit: list[int] = []
        contents: list[npt.NDArray[np.uint8]] = []
        as_read: list[npt.NDArray[np.uint8]] = []
        names = list(dict.fromkeys(unit.source.name for unit in units))
        for unit in units:
            table = read_histories(
                folder, [unit], ["content", "sha256", "text_bytes", "text_characters"]
            ).drop_null()
            self._sizes.append(table.column("text_bytes").to_numpy().astype(np.int64))
            characters.append(table.column("text_characters").to_numpy().astype(np.int64))
            contents += [_bytes_of(chunk) for chunk in table.column("content").chunks]
            as_read += [_bytes_of(chunk)[:, :_DRAWN].copy() for chunk in table.column("sha256").chunks]
            source_of_unit.append(names.index(unit.source.name))
        counts = [len(sizes) for sizes in self._sizes]
        self._starts = np.cumsum([0, *counts])
        self.names = names
        """Sources in order."""
        self.sources: Integers = np.repeat(np.asarray(source_of_unit, np.int64), counts)
        """Index into `names` for each document."""
        self.bytes: Integers = np.concatenate([np.empty(0, np.int64), *self._sizes])
        """UTF-8 bytes of each cleaned text."""
        self.characters: Integers = np.concatenate([np.empty(0, np.int64), *characters])
        self.contents: npt.NDArray[np.uint8] = np.concatenate([np.empty((0, _DIGEST), np.uint8), *contents])
        """SHA-256 of each cleaned text: [documents, 32]."""
        self.draws: npt.NDArray[np.uint64] = first_number(
            np.concatenate([np.empty((0, _DRAWN), np.uint8), *as_read])
        )
        """A number that each document's text as it was read decides, whatever cleaning does to it: [documents]."""
        self._edits: tuple[Edits, ...] = ()
        self._mapped: dict[int, npt.NDArray[np.uint8]] = {}
        self._touched = 0
        kinds = {unit.source.name: unit.source.kind for unit in units}
        self.kinds: list[Kind] = [kinds[name] for name in names]
        """Kind of text of each source."""

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def _offsets(self) -> list[Integers]:
        return [np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]) for sizes in self._sizes]

    def with_edits(self, edits: Sequence[Edits]) -> Candidates:
        """The same documents with passages cut out of them, one after another; `contents` and signatures stay."""
        made = copy(self)
        made._edits = (*self._edits, *edits)
        made.bytes, made.characters = self.bytes.copy(), self.characters.copy()
        for one in edits:
            made.bytes[one.documents] -= one.removed_bytes()
            made.characters[one.documents] -= one.characters
        return made

    def changed(self, documents: Integers) -> npt.NDArray[np.bool_]:
        """Which of some documents have passages cut out of them: [documents]."""
        return np.isin(documents, np.concatenate([documents[:0], *(one.documents for one in self._edits)]))

    def encoded(self, document: int) -> npt.NDArray[np.uint8]:
        """The cleaned text of one document in UTF-8, as it lies on disk but for edits."""
        text = self._stored(document)
        for edits in self._edits:
            text = edits.applied(document, text)
        return text

    def _stored(self, document: int) -> npt.NDArray[np.uint8]:
        if self._touched > _TOUCHED_BYTES:  # pages of a mapped file count as this process's until it is let go
            self._mapped, self._touched = {}, 0
        unit = bisect_right(self._starts, document) - 1
        offsets = self._offsets[unit]
        row = document - int(self._starts[unit])
        self._touched += _PAGES + int(offsets[row + 1] - offsets[row])
        if unit not in self._mapped:
            file = unit_file(self._folder, self._units[unit].number, "text")
            require_size(file, int(offsets[-1]), self._folder.parent)
            self._mapped[unit] = np.asarray(np.memmap(file, np.uint8, mode="r")) if offsets[-1] else _NOTHING
        return self._mapped[unit][int(offsets[row]) : int(offsets[row + 1])]

    def text(self, document: int) -> str:
        """The cleaned text of one document, from disk."""
        return self.encoded(document).tobytes().decode()

    def texts(self, documents: Iterable[int]) -> Fetched[str]:
        """The texts of some documents, fetched from disk when they are asked for."""
        return Fetched(self.text, [int(document) for document in documents])

    def encoded_texts(self, documents: Integers) -> Fetched[npt.NDArray[np.uint8]]:
        """The texts of some documents in UTF-8, fetched from disk when they are asked for."""
        return Fetched(self.encoded, documents.tolist())

    def measure(self, name: str) -> npt.NDArray[np.float64]:
        """What an operator measured of each document, NaN where it did not: [documents].

        Raises `BadInput` where no source has such a measure.
        """
        column, found, names = MEASURE + name, list[npt.NDArray[np.float64]](), set[str]()
        for unit, sizes in zip(self._units, self._sizes, strict=True):
            file = unit_file(self._folder, unit.number, "parquet")
            own = [one for one in pq.read_schema(file).names if one.startswith(MEASURE)]
            names.update(own)
            if column in own:
                table = read_histories(self._folder, [unit], ["content", column])
                kept = table.filter(table["content"].is_valid()).column(column)
                found.append(kept.to_numpy().astype(np.float64))
            else:
                found.append(np.full(len(sizes), np.nan))
        if column not in names:
            known = ", ".join(sorted(one.removeprefix(MEASURE) for one in names)) or "none"
            raise BadInput(f"data.deduplication.quality: no measure is named {name}; there are: {known}")
        return np.concatenate(found)

    def hosts(self) -> Hashes:
        """A key of the host of the page that each document is from, 0 where no address is known: [documents].

        The address is the one behind the position, or else the identifier.
        """
        found = [np.empty(0, np.uint64)]
        for unit in self._units:
            table = read_histories(self._folder, [unit], ["content", "position", "identifier"])
            found.append(hosts_of(table.filter(table["content"].is_valid())))
        return np.concatenate(found)

    def column(self, name: str) -> list[Any]:
        """A column of the first stage's table: [documents]."""
        found: list[Any] = []
        for unit in self._units:
            table = read_histories(self._folder, [unit], ["content", name])
            found += table.filter(table["content"].is_valid()).column(name).to_pylist()
        return found

    def signatures(self, documents: Integers, settings: Deduplication) -> npt.NDArray[np.uint32]:
        """MinHash signatures of some documents: uint32 [documents, permutations]."""
        found = np.empty((len(documents), settings.permutations), np.uint32)
        unit_of = np.searchsorted(self._starts, documents, side="right") - 1
        for number in np.unique(unit_of).tolist():
            rows = np.flatnonzero(unit_of == number)
            file = unit_file(self._folder, self._units[number].number, "signatures")
            documents_of_unit = int(self._starts[number + 1] - self._starts[number])
            require_size(file, 4 * settings.permutations * documents_of_unit, self._folder.parent)
            found[rows] = stored_rows(file, documents[rows] - self._starts[number], settings.permutations)
        return found


class Fetched(Sequence[_Text], Generic[_Text]):
    """Texts that lie on disk until they are asked for."""

    def __init__(self, fetch: Callable[[int], _Text], documents: list[int]) -> None:
        self._fetch, self._documents = fetch, documents

    def __len__(self) -> int:
        return len(self._documents)

    @overload
    def __getitem__(self, index: int) -> _Text: ...
    @overload
    def __getitem__(self, index: slice) -> Fetched[_Text]: ...
    def __getitem__(self, index: int | slice) -> _Text | Fetched[_Text]:
        if isinstance(index, slice):
            return Fetched(self._fetch, self._documents[index])
        return self._fetch(self._documents[index])

    def __iter__(self) -> Iterator[_Text]:
        return map(self._fetch, self._documents)


def hosts_of(rows: pa.Table) -> Hashes:
    """A key of the host in the `position` or else the `identifier` of each row, 0 where there is none: [rows]."""
    named = [
        pc.struct_field(pc.extract_regex(rows[column].combine_chunks().cast(pa.string()), pattern=pattern), "host")
        for column, pattern in (("position", f", {_HOST}"), ("identifier", f"^{_HOST}"))
    ]
    hosts = pc.fill_null(pc.utf8_lower(pc.coalesce(*named)), "")
    return np.where(pc.equal(hosts, "").to_numpy(zero_copy_only=False), np.uint64(0), hashes_of(hosts))


def first_number(digests: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """The number with which each digest begins: [digests]."""
    return np.ascontiguousarray(digests[:, :_DRAWN]).view(">u8").ravel().astype(np.uint64)


def _bytes_of(digests: pa.FixedSizeBinaryArray) -> npt.NDArray[np.uint8]:
    """The digests of an array without nulls: [digests, 32]."""
    start = digests.offset * _DIGEST
    whole = np.frombuffer(digests.buffers()[1], np.uint8)
    return whole[start : start + len(digests) * _DIGEST].reshape(-1, _DIGEST)
