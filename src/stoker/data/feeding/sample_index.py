"""Which tokens a sample holds: a function of (corpus, recipe, sample number), computed in closed form.

Each source is an endless stream: epoch after epoch, all its documents in an order drawn for that epoch.
Sequence k of a source covers tokens kL to (k+1)L of its stream, both included: L inputs, each with its
next token. So every token is an input exactly once an epoch, and every next token within a document is
predicted exactly once. A sequence may begin at the end of one epoch and end in the next. The sequences
that begin in an epoch are themselves taken in an order drawn for it, so that neighbours in the stream
do not meet in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stoker.counter_random import key_of, permutation, permuted
from stoker.data.corpus import Corpus, TokenStore
from stoker.data.feeding.mixture import Mixture

Integers = npt.NDArray[np.int64]

# A batch reads at most two epochs of a source at once; one more for a look back.
_EPOCH_ORDERS_KEPT = 3


@dataclass(frozen=True)
class Pieces:
    """Parts of documents that fill sequences of L+1 tokens, ordered by sequence and place. All int64 [pieces]."""

    sequence: Integers
    """Number of the sequence, from 0, among those asked for."""
    place: Integers
    """Where in the sequence the piece begins, 0 to L."""
    length: Integers
    source: Integers
    epoch: Integers
    document: Integers
    """Index of the document within the source's split."""
    offset: Integers
    """Where in the document the piece begins, in tokens."""

    @staticmethod
    def joined(parts: list[Pieces]) -> Pieces:
        """All pieces of `parts`, put in order."""
        columns = [np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Pieces)]
        order = np.lexsort((columns[1], columns[0]))
        return Pieces(*(column[order] for column in columns))


@dataclass(frozen=True)
class DocumentOrder:
    """Documents in the order in which they follow each other in a stream."""

    documents: Integers
    """int64 [documents]"""
    starts: Integers
    """Where each begins in the stream, and the stream's end: int64 [documents + 1]."""

    @staticmethod
    def of(documents: Integers, store: TokenStore) -> DocumentOrder:
        """The stream of `documents` of `store`, one after another."""
        lengths = store.document_lengths[documents]
        return DocumentOrder(documents, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    def pieces(
        self, begin: Integers, end: Integers, sequence: Integers, place: Integers, source: int, epoch: int
    ) -> Pieces:
        """Cut stretches [begin, end) of the stream, none of them empty, at document boundaries.

        Stretch i fills sequence `sequence[i]` from `place[i]` on. All int64 [stretches].
        """
        first = np.searchsorted(self.starts, begin, side="right") - 1
        last = np.searchsorted(self.starts, end - 1, side="right") - 1
        counts = last - first + 1
        stretch = np.repeat(np.arange(len(begin)), counts)
        rank = np.arange(len(stretch)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        piece_begin = np.maximum(self.starts[rank], begin[stretch])
        length = np.minimum(self.starts[rank + 1], end[stretch]) - piece_begin
        kept = length > 0  # a document without tokens has no piece
        stretch, rank, piece_begin, length = stretch[kept], rank[kept], piece_begin[kept], length[kept]
        return Pieces(
            sequence=sequence[stretch],
            place=place[stretch] + piece_begin - begin[stretch],
            length=length,
            source=np.full(len(rank), source, np.int64),
            epoch=np.full(len(rank), epoch, np.int64),
            document=self.documents[rank],
            offset=piece_begin - self.starts[rank],
        )


class SourceStream:
    """The endless stream of one source, cut into sequences."""

    def __init__(self, store: TokenStore, name: str, seed: int, sequence_length: int) -> None:
        self._store = store
        self._name = name
        self._seed = seed
        self._sequence_length = sequence_length
        self.order = lru_cache(maxsize=_EPOCH_ORDERS_KEPT)(self._order_of_epoch)

    def _order_of_epoch(self, epoch: int) -> DocumentOrder:
        key = key_of(self._seed, "documents", self._name, epoch)
        return DocumentOrder.of(permutation(key, self._store.document_count), self._store)

    def first_sequence_of(self, epoch: int) -> int:
        """Number of the first sequence that begins in `epoch`."""
        return -(-epoch * self._store.token_count // self._sequence_length)

    def epoch_of(self, numbers: Integers) -> Integers:
        """The epoch in which each sequence begins; a source's epochs are taken strictly in turn."""
        return numbers * self._sequence_length // self._store.token_count

    def locate(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Epoch, and offset within the epoch's stream, at which the `numbers`-th sequences to be taken begin."""
        epochs = self.epoch_of(numbers)
        offsets = np.empty_like(numbers)
        for epoch in np.unique(epochs).tolist():
            rows = epochs == epoch
            first, after = self.first_sequence_of(epoch), self.first_sequence_of(epoch + 1)
            key = key_of(self._seed, "sequences", self._name, epoch)
            sequence = first + permuted(key, after - first, numbers[rows] - first)
            offsets[rows] = sequence * self._sequence_length - epoch * self._store.token_count
        return epochs, offsets

    def pieces(self, numbers: Integers, sequence: Integers, source: int) -> list[Pieces]:
        """Pieces of the `numbers`-th sequences, which fill sequences `sequence` of what was asked for."""
        epochs, begin = self.locate(numbers)
        total = self._store.token_count
        end = begin + self._sequence_length + 1
        place = np.zeros_like(begin)
        stretches = [(epochs, begin, np.minimum(end, total), sequence, place)]
        over = end > total  # never beyond the next epoch: a source holds at least one sequence
        if over.any():
            head = np.zeros_like(begin[over])
            stretches.append((epochs[over] + 1, head, end[over] - total, sequence[over], total - begin[over]))
        return [
            self.order(epoch).pieces(start[rows], stop[rows], row[rows], at[rows], source, epoch)
            for of, start, stop, row, at in stretches
            for epoch in np.unique(of).tolist()
            for rows in [of == epoch]
        ]


class SampleIndex:
    """Where every sample of a run comes from."""

    def __init__(self, corpus: Corpus, mixture: Mixture, seed: int, sequence_length: int) -> None:
        self.mixture = mixture
        self.sequence_length = sequence_length
        self.streams = [
            SourceStream(corpus.store(name, "train"), name, seed, sequence_length) for name in corpus.source_names
        ]

    def sources(self, samples: Integers) -> Integers:
        """Index of the source of each sample: int64, of the shape of `samples`."""
        return self.mixture.locate(samples)[0]

    def pieces(self, samples: Integers) -> Pieces:
        """Pieces that make up `samples` (int64 [n]); O(log documents) each once an epoch's order is drawn."""
        sources, numbers = self.mixture.locate(samples)
        parts: list[Pieces] = []
        for source in np.unique(sources).tolist():
            rows = np.flatnonzero(sources == source)
            parts += self.streams[source].pieces(numbers[rows], rows, source)
        return Pieces.joined(parts)
