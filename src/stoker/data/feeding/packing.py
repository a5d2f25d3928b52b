"""From pieces of documents to the arrays a model is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker.data.corpus import TokenStore
from stoker.data.feeding.micro_batch import MicroBatch
from stoker.data.feeding.sample_index import Integers, Pieces

IGNORED = -100
"""Target of a place that predicts nothing."""
_PADDING_SOURCE = -1


@dataclass(frozen=True)
class Packed:
    """Sequences of L tokens, as arrays [sequences, L]."""

    tokens: Integers
    targets: Integers
    """The next token, or `IGNORED` where it belongs to another document."""
    positions: Integers
    """From 0 in every piece of a document."""
    documents: npt.NDArray[np.int32]
    """0, 1, 2, … within each sequence."""


def pack(
    pieces: Pieces, stores: Sequence[TokenStore], sequences: int, sequence_length: int, few: bool = False
) -> Packed:
    """Lay `pieces`, which fill `sequences` sequences of L+1 tokens without a gap, out as arrays.

    `few` as in `TokenStore.starts_of`.
    """
    L = sequence_length
    with_next = np.zeros(sequences * (L + 1), np.int64)
    for source in np.unique(pieces.source[pieces.source != _PADDING_SOURCE]).tolist():
        rows = pieces.source == source
        starts = stores[source].starts_of(pieces.document[rows], few) + pieces.offset[rows]
        places = pieces.sequence[rows] * (L + 1) + pieces.place[rows]
        stores[source].copy_runs(starts, pieces.length[rows], with_next, places)
    by_sequence = with_next.reshape(sequences, L + 1)
    targets = by_sequence[:, 1:].copy()
    targets[last_places(pieces, L)] = IGNORED
    for row in np.flatnonzero(pieces.source == _PADDING_SOURCE):
        targets[pieces.sequence[row], pieces.place[row] :] = IGNORED

    inputs = np.minimum(pieces.length, L - pieces.place)  # the token after the last is only a target
    begins = pieces.sequence * L + pieces.place
    first_piece = np.searchsorted(pieces.sequence, np.arange(sequences))
    number = (np.arange(len(begins)) - first_piece[pieces.sequence]).astype(np.int32)
    return Packed(
        tokens=by_sequence[:, :-1].copy(),
        targets=targets,
        positions=(np.arange(sequences * L) - np.repeat(begins, inputs)).reshape(sequences, L),
        documents=np.repeat(number, inputs).reshape(sequences, L),
    )


def last_places(pieces: Pieces, sequence_length: int) -> tuple[Integers, Integers]:
    """(sequence, place) of every input whose next token belongs to another piece."""
    end = pieces.place + pieces.length
    inside = end <= sequence_length
    return pieces.sequence[inside], end[inside] - 1


def padding(sequences: Integers, places: Integers, sequence_length: int) -> Pieces:
    """Pieces of nothing that fill `sequences[i]` from `places[i]` to its end: a document of their own."""
    none = np.zeros_like(sequences)
    source = np.full_like(sequences, _PADDING_SOURCE)
    return Pieces(sequences, places, sequence_length + 1 - places, source, none, none, none)


def as_micro_batch(
    pieces: Pieces, stores: Sequence[TokenStore], samples: Integers, sources: Integers, sequence_length: int
) -> MicroBatch:
    """`pack` as tensors, for sequences with the given sample numbers and sources (int64 [sequences])."""
    import torch

    packed = pack(pieces, stores, len(samples), sequence_length)
    return MicroBatch(
        tokens=torch.from_numpy(packed.tokens),
        targets=torch.from_numpy(packed.targets),
        positions=torch.from_numpy(packed.positions),
        documents=torch.from_numpy(packed.documents),
        sources=torch.from_numpy(sources),
        samples=torch.from_numpy(samples),
    )
