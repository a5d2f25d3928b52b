"""The documents that reading, cleaning and filters left over, in order: what later stages choose from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from stoker.data.reading.units import Unit
from stoker.data.stages.read_and_clean import read_histories, unit_file
from stoker.recipe import Deduplication

Integers = npt.NDArray[np.int64]


class Candidates:
    """Kept documents of all units, numbered from 0 in the order of sources, files and positions."""

    def __init__(self, folder: Path, units: Sequence[Unit]) -> None:
        self._folder, self._units = folder, units
        self._sizes: list[Integers] = []
        characters: list[Integers] = []
        source_of_unit: list[int] = []
        self.contents: list[bytes] = []
        """SHA-256 of each cleaned text."""
        names = list(dict.fromkeys(unit.source.name for unit in units))
        for unit in units:
            table = read_histories(folder, [unit], ["content", "text_bytes", "text_characters"]).drop_null()
            self._sizes.append(table.column("text_bytes").to_numpy().astype(np.int64))
            characters.append(table.column("text_characters").to_numpy().astype(np.int64))
            self.contents += table.column("content").to_pylist()
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

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def _offsets(self) -> list[Integers]:
        return [np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]) for sizes in self._sizes]

    @cached_property
    def _mapped(self) -> list[npt.NDArray[np.uint8]]:
        files = [unit_file(self._folder, unit.number, "text") for unit in self._units]
        return [
            np.asarray(np.memmap(file, np.uint8, mode="r")) if sizes.sum() else np.empty(0, np.uint8)
            for file, sizes in zip(files, self._sizes, strict=True)
        ]

    def text(self, document: int) -> str:
        """The cleaned text of one document, from disk."""
        unit = bisect_right(self._starts, document) - 1
        offsets = self._offsets[unit]
        row = document - int(self._starts[unit])
        return self._mapped[unit][int(offsets[row]) : int(offsets[row + 1])].tobytes().decode()

    def texts(self, documents: Iterable[int]) -> Texts:
        """The texts of some documents, fetched from disk when they are asked for."""
        return Texts(self, [int(document) for document in documents])

    def signatures(self, documents: Integers, settings: Deduplication) -> npt.NDArray[np.uint32]:
        """MinHash signatures of some documents: uint32 [documents, permutations]."""
        found = np.empty((len(documents), settings.permutations), np.uint32)
        unit_of = np.searchsorted(self._starts, documents, side="right") - 1
        for number in np.unique(unit_of).tolist():
            rows = np.flatnonzero(unit_of == number)
            file = unit_file(self._folder, self._units[number].number, "signatures")
            table = np.memmap(file, "<u4", mode="r").reshape(-1, settings.permutations)
            found[rows] = table[documents[rows] - self._starts[number]]
        return found


class Texts(Sequence[str]):
    """Texts that lie on disk until they are asked for."""

    def __init__(self, candidates: Candidates, documents: list[int]) -> None:
        self._candidates, self._documents = candidates, documents

    def __len__(self) -> int:
        return len(self._documents)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts(self._candidates, self._documents[index])
        return self._candidates.text(self._documents[index])

    def __iter__(self) -> Iterator[str]:
        return (self._candidates.text(document) for document in self._documents)
