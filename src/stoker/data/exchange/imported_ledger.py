"""The ledger of an imported corpus: where each document's tokens lay, and where they are now.

What happened to the text before others made tokens of it is not known, so nothing is dropped, measured or judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stoker.data.ledger.description import SourceNote
from stoker.data.ledger.writing import LedgerWriter

_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class ImportedDocuments:
    """The documents of one dataset in its order; arrays by document."""

    source: str
    file: str
    """The file whose tokens they are, as the ledger names it."""
    held_out: npt.NDArray[np.bool_]
    tokens: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    """UTF-8 bytes and characters of the text: [documents, 2]."""
    digests: npt.NDArray[np.uint8]
    """SHA-256 of the token ids as little-endian uint32: [documents, 32]."""


def write_imported_ledger(corpus: Path, datasets: Sequence[ImportedDocuments]) -> None:
    """Write `corpus`/ledger: one row for each document, kept or held out.

    A document is named `<source>:<number>` by its number in the dataset, from 0, as Megatron counts them. `sha256`
    is of its ids, since there is no text as it was read.
    """
    writer = LedgerWriter(corpus / "ledger", [SourceNote(one.source, "prose", None, ()) for one in datasets])
    for dataset in datasets:
        count = len(dataset.tokens)
        places = np.where(dataset.held_out, np.cumsum(dataset.held_out), np.cumsum(~dataset.held_out)) - 1
        for first in range(0, count, _ROWS_AT_A_TIME):
            writer.add(_rows(dataset, places, first, min(count, first + _ROWS_AT_A_TIME)))
    writer.close()


def _rows(dataset: ImportedDocuments, places: npt.NDArray[np.int64], first: int, after: int) -> pa.Table:
    chosen = slice(first, after)
    rows = after - first
    held_out = pa.array(dataset.held_out[chosen].astype(np.int8))
    return pa.table(
        {
            "source": pa.repeat(pa.scalar(dataset.source), rows),
            "kind": pa.repeat(pa.scalar("prose"), rows),
            "file": pa.repeat(pa.scalar(dataset.file), rows),
            "position": pa.array([f"document {number}" for number in range(first, after)], pa.string()),
            "identifier": pa.array([f"{dataset.source}:{number}" for number in range(first, after)], pa.string()),
            "sha256": pa.array([digest.tobytes() for digest in dataset.digests[chosen]], pa.binary(32)),
            "bytes": dataset.sizes[chosen, 0],
            "characters": dataset.sizes[chosen, 1],
            "verdict": pa.array(["kept", "held_out"]).take(held_out),
            "split": pa.array(["train", "held_out"]).take(held_out),
            "document": places[chosen],
            "tokens": dataset.tokens[chosen],
        }
    )
