"""Held-out text as sequences to be scored: the same ones every time, and the bytes that their targets spell.

Documents follow each other in one fixed order, drawn once and for all from the source's name so that the
first few sequences are no single file's, and are cut into sequences as in training. Every token but the
first of each document is predicted exactly once. The last sequence is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from tokenizers import Tokenizer

from stoker.counter_random import key_of, permutation
from stoker.data.corpus import Corpus, TokenStore
from stoker.data.feeding.micro_batch import MicroBatch
from stoker.data.feeding.packing import as_micro_batch, padding
from stoker.data.feeding.sample_index import DocumentOrder, Pieces

# The order is the same for every recipe, so that runs with other seeds are scored on the same text.
_ORDER_SEED = 0


@dataclass(frozen=True)
class HeldOut:
    """Held-out sequences of one source."""

    name: str
    """The source."""
    batches: HeldOutBatches
    """Empty when nothing of the source was held out."""
    tokens: int
    """Targets that count, over all batches."""
    bytes: int
    """UTF-8 bytes that those targets spell: those of the documents read; of a document that the last
    sequence cuts off, those of the whole characters before the cut; without those of each document's
    first token where documents do not begin with a special token, since nothing predicts it."""
    documents: int
    """Documents read, the one cut off included."""


class HeldOutBatches(Sequence[MicroBatch]):
    """The micro-batches, each made when it is asked for."""

    def __init__(
        self, order: DocumentOrder, store: TokenStore, source: int, stop: int, sequence_length: int, batch_size: int
    ) -> None:
        """Covers tokens [0, `stop`) of the stream of `order`."""
        self._order = order
        self._store = store
        self._source = source
        self._stop = stop
        self._sequence_length = sequence_length
        self._batch_size = batch_size
        self.sequences = max(0, -(-(stop - 1) // sequence_length))

    def __len__(self) -> int:
        return -(-self.sequences // self._batch_size)

    @overload
    def __getitem__(self, index: int) -> MicroBatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[MicroBatch]: ...
    def __getitem__(self, index: int | slice) -> MicroBatch | list[MicroBatch]:
        """Batch `index`; the last one may hold fewer sequences."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        first = number * self._batch_size
        samples = np.arange(first, min(first + self._batch_size, self.sequences))
        begin = samples * self._sequence_length
        end = np.minimum(begin + self._sequence_length + 1, self._stop)
        rows = np.arange(len(samples))
        pieces = self._order.pieces(begin, end, rows, np.zeros_like(begin), source=0, epoch=0)
        short = end - begin <= self._sequence_length
        if short.any():
            pieces = Pieces.joined([pieces, padding(rows[short], (end - begin)[short], self._sequence_length)])
        batch = as_micro_batch(pieces, [self._store], samples, np.zeros_like(samples), self._sequence_length)
        return replace(batch, sources=batch.sources + self._source)


def read_held_out(
    corpus: Corpus, source: str, sequence_length: int, max_sequences: int | None, batch_size: int
) -> HeldOut:
    """At most `max_sequences` sequences (None: all) of the held-out split of `source`."""
    store = corpus.store(source, "held_out")
    documents = permutation(key_of(_ORDER_SEED, "held out", source), store.document_count)
    order = DocumentOrder.of(documents, store)
    stop = store.token_count
    if max_sequences is not None:
        stop = min(stop, max_sequences * sequence_length + 1)
    number = corpus.source_names.index(source)
    batches = HeldOutBatches(order, store, number, stop, sequence_length, batch_size)
    lengths = np.clip(stop - order.starts[:-1], 0, np.diff(order.starts))
    read = lengths > 0
    return HeldOut(
        name=source,
        batches=batches,
        tokens=int(lengths.sum() - read.sum()),
        bytes=_bytes_spelled(corpus, store, order, stop),
        documents=int(read.sum()),
    )


def _bytes_spelled(corpus: Corpus, store: TokenStore, order: DocumentOrder, stop: int) -> int:
    """UTF-8 bytes that the counted targets among tokens [0, `stop`) of the stream spell; see `HeldOut.bytes`."""
    whole = order.documents[(order.starts[1:] <= stop) & (np.diff(order.starts) > 0)]
    total = int(store.document_bytes[whole].sum())
    cut = np.flatnonzero((order.starts[:-1] < stop) & (order.starts[1:] > stop)).tolist()
    if not cut and corpus.adds_bos:
        return total
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer_path))
    for rank in cut:
        document = int(order.documents[rank])
        ids = store.document_tokens(document)[: stop - int(order.starts[rank])]
        total += min(_bytes_of(tokenizer, [ids.tolist()]), int(store.document_bytes[document]))
    if not corpus.adds_bos:
        read = order.documents[(order.starts[:-1] < stop) & (np.diff(order.starts) > 0)]
        firsts = [store.read(start, start + 1).tolist() for start in store.document_starts[read].tolist()]
        total -= _bytes_of(tokenizer, firsts)
    return total


def _bytes_of(tokenizer: Tokenizer, sequences: list[list[int]]) -> int:
    """Bytes of the whole characters that `sequences` begin with; a character cut at the end does not count."""
    texts = tokenizer.decode_batch(sequences, skip_special_tokens=True)
    return sum(len(text.rstrip("\N{REPLACEMENT CHARACTER}").encode()) for text in texts)
