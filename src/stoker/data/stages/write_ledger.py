"""Fifth stage: one row of history for everything that was ever read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stoker.data.ledger import LEDGER_SCHEMA
from stoker.data.reading.units import Unit
from stoker.data.shards import Shard
from stoker.data.stages.candidates import Candidates, Integers
from stoker.data.stages.read_and_clean import read_histories
from stoker.data.stages.select import VERDICTS, Selection
from stoker.data.stages.tokenise import SPLITS, token_counts
from stoker.durable_files import durable_file
from stoker.progress import Progress

_KEPT_AS_READ = ["file", "position", "identifier", "sha256", "characters", "bytes", "detail"]


def write_ledger(
    read: Path,
    units: Sequence[Unit],
    candidates: Candidates,
    selection: Selection,
    shards: dict[str, dict[str, list[Shard]]],
    corpus: Path,
    progress: Progress,
) -> None:
    """Write `corpus`/ledger: what the first stage found, joined with what became of it."""
    documents, tokens = _places(candidates, selection, shards, corpus)
    identifiers = read_histories(read, units, ["identifier", "verdict"])
    identifiers = identifiers.filter(pc.equal(identifiers["verdict"], "kept")).column("identifier").to_pylist()
    start = 0
    with progress.task("write the ledger", len(units), "parts") as task:
        for unit in units:
            history = read_histories(read, [unit])
            kept = np.flatnonzero(pc.equal(history["verdict"], "kept").to_numpy(zero_copy_only=False))
            chosen = np.arange(start, start + len(kept))
            start += len(kept)
            fates = _fates(candidates, selection, chosen, identifiers)
            table = _joined(unit.source.name, history, kept, fates, documents[chosen], tokens[chosen])
            path = corpus / "ledger" / f"part-{unit.number:06d}.parquet"
            with durable_file(path) as stream:
                pq.write_table(table, stream, compression="zstd")
            task.advance()


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
    candidates: Candidates, selection: Selection, chosen: Integers, identifiers: list[str]
) -> list[dict[str, object]]:
    """What the second stage made of some candidates, in the ledger's words."""
    fates: list[dict[str, object]] = []
    for candidate in chosen.tolist():
        verdict = VERDICTS[int(selection.verdict[candidate])]
        if verdict in SPLITS:
            fates.append({"verdict": "kept" if verdict == "train" else verdict, "split": verdict})
            continue
        original = int(selection.duplicate_of[candidate])
        fates.append(
            {
                "verdict": "dropped",
                "reason": verdict,
                "duplicate_source": candidates.names[int(candidates.sources[original])],
                "duplicate_of": identifiers[original],
                "similarity": float(selection.similarity[candidate]),
            }
        )
    return fates


def _joined(
    source: str,
    history: pa.Table,
    kept: Integers,
    fates: list[dict[str, object]],
    documents: Integers,
    tokens: Integers,
) -> pa.Table:
    columns = {name: history[name] for name in _KEPT_AS_READ}
    columns["source"] = pa.array([source] * history.num_rows, pa.string())
    for name in ("verdict", "reason"):
        values = history[name].to_pylist()
        for row, fate in zip(kept.tolist(), fates, strict=True):
            values[row] = fate.get(name)
        columns[name] = pa.array(values, pa.string())
    for name in ("duplicate_source", "duplicate_of", "similarity", "split"):
        scattered: list[object] = [None] * history.num_rows
        for row, fate in zip(kept.tolist(), fates, strict=True):
            scattered[row] = fate.get(name)
        columns[name] = pa.array(scattered, LEDGER_SCHEMA.field(name).type)
    for name, numbers in (("document", documents), ("tokens", tokens)):
        placed = np.full(history.num_rows, -1, np.int64)
        placed[kept] = numbers
        columns[name] = pa.array(placed, mask=placed < 0)
    return pa.table([columns[name] for name in LEDGER_SCHEMA.names], schema=LEDGER_SCHEMA)
