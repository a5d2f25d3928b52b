"""The search for evaluation items: a document is searched for all of them in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.decontamination.kernels import SeededItems, found_near, looked_up
from stoker.data.decontamination.tables import NEAR_SEED, SCRIPTS, SHORT_SEED, Tables, tables_of
from stoker.data.minhash import Hashes, shingle_hashes, token_hashes

_LIKENESS = {"words": 0.8, "characters": 0.85}
"""With these, a short item that differs by substituted or left-out tokens alone always has a seed in common."""


@dataclass(frozen=True, slots=True)
class Contamination:
    """The evaluation item of which a document holds most."""

    item: int
    """Its number, see `EvaluationIndex.name_of`."""
    overlap: float
    """Share of its runs that stand in the document; of a short or changed item, of its tokens in order."""
    tokens: npt.NDArray[np.bool_]
    """Which tokens of the document belong to items, this or another [tokens]."""


class EvaluationIndex:
    """The items of evaluation sets. Their tables may lie in memory or in a file."""

    def __init__(self, tables: Tables) -> None:
        """`tables` are those that `tables_of` gives."""
        self._tables = {name: _read_only(table) for name, table in tables.items()}
        ngram, ngram_characters, self.not_looked_for = tables["sizes"].tolist()
        """Items too short to be evidence, or short and mostly digits and symbols."""
        self._sizes = {"words": ngram, "characters": ngram_characters}
        self._seeded = [
            SeededItems.of(self._tables, f"{script}.{part}", seeds[script], _LIKENESS[script])
            for script in SCRIPTS
            for part, seeds in (("near", NEAR_SEED), ("short", SHORT_SEED))
            if f"{script}.{part}.seeds" in tables
        ]

    @classmethod
    def of(cls, items: Iterable[tuple[str, str]], ngram: int, ngram_characters: int) -> EvaluationIndex:
        """The index of items, given by name and text."""
        return cls(tables_of(items, ngram, ngram_characters))

    def name_of(self, item: int) -> str:
        """The name of an item: file, place and field."""
        ends = self._tables["name_ends"]
        start = ends[item - 1] if item else 0
        return bytes(self._tables["names"][start : ends[item]]).decode("utf-8", "surrogatepass")

    def search(self, text: str) -> Contamination | None:
        """The item of which `text` holds most, the first of several, or None where it holds none."""
        tokens = token_hashes(text, symbols=False)
        marked = np.zeros(len(tokens), np.bool_)
        found = [*self._found_runs(tokens, marked), *self._found_near(tokens, marked)]
        if not found:
            return None
        overlap, item = max(found, key=lambda one: (one[0], -one[1]))
        return Contamination(item, overlap, marked)

    def _found_runs(self, tokens: Hashes, marked: npt.NDArray[np.bool_]) -> Iterator[tuple[float, int]]:
        """(overlap, item) of long items of which a run stands in the document, whose tokens are `marked`."""
        for script, size in self._sizes.items():
            keys = self._tables.get(f"{script}.runs")
            if keys is None or len(tokens) < size:
                continue
            places = looked_up(shingle_hashes(tokens, size), keys, self._tables[f"{script}.runs.buckets"])
            at = np.flatnonzero(places >= 0)
            for start in at.tolist():
                marked[start : start + size] = True
            items = self._tables[f"{script}.runs.items"][np.unique(places[at])]
            numbers, counts = np.unique(items, return_counts=True)
            shares = counts / self._tables["runs_of_item"][numbers]
            yield from zip(shares.tolist(), numbers.tolist(), strict=True)

    def _found_near(self, tokens: Hashes, marked: npt.NDArray[np.bool_]) -> Iterator[tuple[float, int]]:
        """The same of items that stand in the document whole, if changed."""
        for seeded in self._seeded:
            if len(tokens) >= seeded.seed:
                yield from found_near(tokens, shingle_hashes(tokens, seeded.seed), seeded, marked)


def _read_only(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What is mapped from a file is read-only, and kernels are compiled once for that and not for both."""
    view = table.view()
    view.flags.writeable = False
    return view
