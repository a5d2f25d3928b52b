"""Fifth stage: one row of history for everything that was ever read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stoker.data.ledger.description import SourceNote
from stoker.data.ledger.schema import SELECTION
from stoker.data.ledger.writing import LedgerWriter
from stoker.data.reading.units import Unit
from stoker.data.shards import Shard
from stoker.data.stages.candidates import Candidates, Integers
from stoker.data.stages.read_and_clean import read_histories
from stoker.data.stages.select import VERDICTS, Selection
from stoker.data.stages.tokenise import SPLITS, token_counts
from stoker.progress import Progress

_OF_THE_CLEANED_TEXT = ("content", "text_bytes", "text_characters")


def write_ledger(
    read: Path,
    units: Sequence[Unit],
    notes: Sequence[SourceNote],
    candidates: Candidates,
    selection: Selection,
    shards: dict[str, dict[str, list[Shard]]],
    corpus: Path,
    progress: Progress,
) -> None:
    """Write `corpus`/ledger: what the first stage found, joined with what became of it.

    `notes` say what the documents of each source went through, in the order of the sources.
    """
    writer = LedgerWriter(corpus / "ledger", notes)
    documents, tokens = _places(candidates, selection, shards, corpus)
    originals = _Originals(read, units, selection)
    start = 0
    with progress.task("write the ledger", len(units), "parts") as task:
        for unit in units:
            history = read_histories(read, [unit])
            kept = np.flatnonzero(pc.equal(history["verdict"], "kept").to_numpy(zero_copy_only=False))
            chosen = slice(start, start + len(kept))
            start += len(kept)
            fates = _fates(candidates, selection, chosen, originals)
            fates["document"], fates["tokens"] = (
                pa.array(numbers[chosen], mask=numbers[chosen] < 0) for numbers in (documents, tokens)
            )
            writer.add(_joined(unit.source.name, history, kept, fates))
            task.advance()
        writer.close()


class _Originals:
    """Identifiers of the candidates that others repeat, and of no more: a name for each would take gigabytes."""

    def __init__(self, read: Path, units: Sequence[Unit], selection: Selection) -> None:
        self._candidates = np.unique(selection.duplicate_of[selection.duplicate_of >= 0])
        found: list[pa.Array] = [pa.array([], pa.large_string())]
        start = 0
        for unit in units:
            names = read_histories(read, [unit], ["identifier", "verdict"])
            names = names.filter(pc.equal(names["verdict"], "kept"))["identifier"]
            first, after = np.searchsorted(self._candidates, [start, start + len(names)])
            chosen = self._candidates[first:after] - start
            found += names.take(pa.array(chosen)).cast(pa.large_string()).chunks
            start += len(names)
        self._names = pa.chunked_array(found).combine_chunks()

    def named(self, candidates: Integers) -> pa.Array:
        """The identifier of each of some originals; null for -1."""
        places = np.searchsorted(self._candidates, candidates)
        return self._names.take(pa.array(places, mask=candidates < 0)).cast(pa.string())


def _places(
    candidates: Candidates, selection: Selection, shards: dict[str, dict[str, list[Shard]]], corpus: Path
) -> tuple[Integers, Integers]:
    """Index within its split and tokens of each candidate, -1 for those that were removed."""
    documents = np.full(len(candidates), -1, np.int64)
    tokens = np.full(len(candidates), -1, np.int64)
    for index, name in enumerate(candidates.names):
        for split, verdict in SPLITS.items():
            own = np.flatnonzero((selection.verdict == verdict) & (candidates.sources == index))
            documents[own] = np.arange(len(own))
            tokens[own] = token_counts(corpus, shards[name][split])
    return documents, tokens


def _fates(
    candidates: Candidates, selection: Selection, chosen: slice, originals: _Originals
) -> dict[str, pa.Array]:
    """What the second stage made of some candidates, in the ledger's words: columns [chosen]."""
    verdict, original = selection.verdict[chosen], selection.duplicate_of[chosen]
    repeats = original >= 0
    words = pa.array(VERDICTS, pa.string())
    split = words.take(pa.array(verdict, mask=verdict >= len(SPLITS)))
    fate = pa.array(["kept", "held_out", *["dropped"] * (len(VERDICTS) - len(SPLITS))]).take(pa.array(verdict))
    sources = pa.array(candidates.names, pa.string())
    return {
        "verdict": fate,
        "stage": pa.array([SELECTION]).take(pa.array(np.zeros(len(verdict), np.int8), mask=verdict < len(SPLITS))),
        "reason": words.take(pa.array(verdict, mask=verdict < len(SPLITS))),
        "split": split,
        "duplicate_source": sources.take(pa.array(candidates.sources[original], mask=~repeats)),
        "duplicate_of": originals.named(original),
        "similarity": pa.array(selection.similarity[chosen], mask=np.isnan(selection.similarity[chosen])),
        "detail": selection.earlier.details(chosen.start, chosen.stop),
        **{edits.reason: _or_null(edits.lost(chosen.start, chosen.stop)) for edits in selection.edits},
    }


def _or_null(numbers: Integers) -> pa.Array:
    return pa.array(numbers, mask=numbers == 0)


def _joined(source: str, history: pa.Table, kept: Integers, fates: dict[str, pa.Array]) -> pa.Table:
    """The rows of a unit as the ledger has them, `fates` [kept] in place of what the first stage said of these."""
    place = np.full(history.num_rows, -1, np.int64)
    place[kept] = np.arange(len(kept))
    taken = pa.array(place, mask=place < 0)
    passed = pa.array(place >= 0)
    columns = {name: history[name] for name in history.column_names if name not in _OF_THE_CLEANED_TEXT}
    columns["source"] = pa.repeat(pa.scalar(source), history.num_rows)
    for name, values in fates.items():
        column = values.take(taken)
        columns[name] = pc.if_else(passed, column, history[name]) if name in history.column_names else column
    return pa.table(columns)
