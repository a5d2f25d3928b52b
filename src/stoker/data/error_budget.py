"""How much of a source may be unreadable before its preparation stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from stoker.data.corpus import Corpus
from stoker.data.ledger import Ledger
from stoker.data.reading.poisoned import POISONED
from stoker.data.stages.read_and_clean import UnitRead
from stoker.errors import BadInput
from stoker.plural import counted
from stoker.recipe import Data

_ALWAYS_ALLOWED = 10
"""Faults of a source that no budget forbids: of few documents, one is a large share."""
_TOLD = 3


@dataclass
class _Tally:
    size: int = 0
    documents: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)


class ErrorBudget:
    """Counts what was found in each source, and stops when too much of it is faults."""

    def __init__(self, data: Data, sizes: Mapping[str, int]) -> None:
        """`sizes` are the bytes of each source, from which a part of it tells how much there will be."""
        self._data, self._sizes = data, sizes
        self._found = {source.name: _Tally() for source in data.sources}

    def add(self, source: str, found: UnitRead) -> None:
        """Count a unit. Raises `BadInput` when the source has more faults than all of it may have."""
        tally = self._found[source]
        tally.size += found.size
        tally.documents += found.documents
        tally.faults.update(found.faults)
        tally.places += found.places[: _TOLD - len(tally.places)]
        # Faults may stand close together; they are measured by what is to be expected of all of the source.
        entries = (tally.documents + tally.faults.total()) * max(1.0, self._sizes[source] / max(tally.size, 1))
        _require_within(self._data, source, entries, tally.faults, tally.places)


def require_few_faults(data: Data, corpus: Corpus) -> None:
    """The same for a finished corpus, which another `on_error` may have made. Raises `BadInput`."""
    faults: dict[str, Counter[str]] = {}
    documents: Counter[str] = Counter()
    for entry in corpus.manifest["funnel"]:
        if entry["stage"] == "fault":
            faults.setdefault(entry["source"], Counter())[entry["reason"]] += entry["documents"]
        elif entry["stage"] == "read":
            documents[entry["source"]] += entry["documents"]
    for source, found in faults.items():
        _require_within(data, source, documents[source] + found.total(), found, _first_places(corpus, source))


def _first_places(corpus: Corpus, source: str) -> list[str]:
    rows = Ledger(corpus.folder).rows().filter(pl.col("source") == source, pl.col("verdict") == "fault")
    found = rows.select("file", "position", "reason").head(_TOLD).collect()
    return [f"{file}, {position}: {reason}" for file, position, reason in found.iter_rows()]


def _require_within(data: Data, source: str, entries: float, faults: Counter[str], places: Sequence[str]) -> None:
    unreadable = faults.total() - faults[POISONED]
    if data.on_error == "stop" and unreadable:
        raise BadInput(
            f"data.sources[{source}]: {_told(faults, places)}. Repair what cannot be read, or let data.on_error be "
            "`skip` to leave it out, up to data.error_budget"
        )
    if faults.total() > max(_ALWAYS_ALLOWED, data.error_budget * entries):
        share = f"{counted(faults.total(), 'faults')} in {counted(round(entries), 'documents')} to be expected"
        raise BadInput(
            f"data.sources[{source}]: {share} ({faults.total() / entries:.2%}), over data.error_budget "
            f"({data.error_budget:.2%}, and always {_ALWAYS_ALLOWED}): {_told(faults, places)}. Look at what is "
            "wrong with them, or raise data.error_budget"
        )


def _told(faults: Counter[str], places: Sequence[str]) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(faults.items()))
    return f"{reasons}" + (f" (the first: {'; '.join(places)})" if places else "")
