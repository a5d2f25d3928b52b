"""Which tokens a sample holds: a function of (corpus, recipe, sample number), computed in closed form.

Each source is an endless stream: epoch after epoch, all its documents in an order drawn for that epoch.
Sequence k of a source covers tokens kL to (k+1)L of its stream, both included: L inputs, each with its
next token. So every token is an input exactly once an epoch, and every next token within a document is
predicted exactly once. A sequence may begin at the end of one epoch and end in the next. The sequences
that begin in an epoch are themselves taken in an order drawn for it, so that neighbours in the stream
do not meet in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from stoker.counter_random import key_of, permutation, permuted
from stoker.data.corpus import Corpus, TokenStore
from stoker.data.feeding.order_in_parts import OrderInParts
from stoker.data.feeding.staged_mixture import Selection, StagedMixture
from stoker.data.feeding.stages import Limits
from stoker.errors import BadInput
from stoker.plural import counted

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

    def touched(self, begin: Integers, end: Integers) -> npt.NDArray[np.bool_]:
        """Which documents have a token in any of the stretches [begin, end), none of them empty: bool [documents].

        What lies before the stream or after it does not count.
        """
        length = int(self.starts[-1])
        inside = (begin < length) & (end > 0)
        first = np.searchsorted(self.starts, np.maximum(begin[inside], 0), side="right") - 1
        last = np.searchsorted(self.starts, np.minimum(end[inside], length) - 1, side="right") - 1
        steps = np.zeros(len(self.documents) + 1, np.int64)
        np.add.at(steps, first, 1)
        np.add.at(steps, last + 1, -1)
        return np.cumsum(steps)[:-1] > 0

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
    """The endless stream of one source, or of some of its documents, cut into sequences."""

    def __init__(
        self,
        store: TokenStore,
        name: str,
        seed: int,
        sequence_length: int,
        pool: Pool | None = None,
        few: bool = False,
    ) -> None:
        """`pool`: the documents that are taken; by default all, none of them taken before. `few` as in
        `SampleIndex`."""
        self._few = few
        self._store = store
        self._name = name
        self._seed = seed
        self._sequence_length = sequence_length
        self._pool = pool
        self._early: list[tuple[int, Integers]] = [] if pool is None else pool.catching_up(store, sequence_length)
        sizes = [int(store.document_lengths[documents].sum()) for _, documents in self._early]
        self._starts = np.cumsum([0, *sizes], dtype=np.int64)
        self._documents = None if pool is None else pool.documents
        self._whole = store.token_count if pool is None else int(store.document_lengths[pool.documents].sum())
        self.order = lru_cache(maxsize=_EPOCH_ORDERS_KEPT)(self._order_of_epoch)
        self._parts = lru_cache(maxsize=_EPOCH_ORDERS_KEPT)(self._parts_of_epoch)

    def _key(self, what: str, epoch: int) -> int:
        selection = () if self._pool is None else (self._pool.selection,)
        return key_of(self._seed, what, self._name, epoch, *selection)

    def _order_of_epoch(self, epoch: int) -> DocumentOrder:
        key, documents = self._key("documents", epoch), self._documents_of(epoch)
        if documents is None:
            return DocumentOrder.of(permutation(key, self._store.document_count), self._store)
        return DocumentOrder.of(documents[permutation(key, len(documents))], self._store)

    def _parts_of_epoch(self, epoch: int) -> OrderInParts:
        documents, lengths = self._documents_of(epoch), self._store.document_lengths
        return OrderInParts(self._key("documents", epoch), lengths if documents is None else lengths[documents])

    def _documents_of(self, epoch: int) -> Integers | None:
        """Documents that are taken in `epoch`; None for all of the source."""
        return self._early[epoch][1] if epoch < len(self._early) else self._documents

    def _order_around(self, epoch: int, begin: Integers, end: Integers) -> DocumentOrder:
        """An order in which the stretches [begin, end) of the epoch's stream are where they are in the whole."""
        if not self._few:
            return self.order(epoch)
        places, starts = self._parts(epoch).around(begin, end)
        documents = self._documents_of(epoch)
        return DocumentOrder(places if documents is None else documents[places], starts)

    def _start_of(self, epoch: int) -> int:
        """Tokens of the stream before `epoch`."""
        early = len(self._early)
        return int(self._starts[min(epoch, early)]) + max(0, epoch - early) * self._whole

    def _tokens_of(self, epochs: Integers) -> Integers:
        sizes = np.append(np.diff(self._starts), self._whole)
        return np.asarray(sizes[np.minimum(epochs, len(self._early))])

    def number_of(self, epoch: int) -> int:
        """How many times the documents of `epoch` of this stream had been taken before."""
        if self._pool is None:
            return epoch
        early = len(self._early)
        return self._early[epoch][0] if epoch < early else self._pool.most + epoch - early

    def first_sequence_of(self, epoch: int) -> int:
        """Number of the first sequence that begins in `epoch`."""
        return -(-self._start_of(epoch) // self._sequence_length)

    def epoch_of(self, numbers: Integers) -> Integers:
        """The epoch in which each sequence begins; a source's epochs are taken strictly in turn."""
        places = numbers * self._sequence_length
        if not self._early:
            return places // self._whole
        late = len(self._early) + (places - self._starts[-1]) // self._whole
        early = np.searchsorted(self._starts, places, side="right") - 1
        return np.where(places >= self._starts[-1], late, early)

    def locate(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Epoch, and offset within the epoch's stream, at which the `numbers`-th sequences to be taken begin."""
        epochs = self.epoch_of(numbers)
        offsets = np.empty_like(numbers)
        for epoch in np.unique(epochs).tolist():
            rows = epochs == epoch
            first, after = self.first_sequence_of(epoch), self.first_sequence_of(epoch + 1)
            sequence = first + permuted(self._key("sequences", epoch), after - first, numbers[rows] - first)
            offsets[rows] = sequence * self._sequence_length - self._start_of(epoch)
        return epochs, offsets

    def pieces(self, numbers: Integers, sequence: Integers, source: int) -> list[Pieces]:
        """Pieces of the `numbers`-th sequences, which fill sequences `sequence` of what was asked for."""
        epochs, begin = self.locate(numbers)
        total = self._tokens_of(epochs)
        end = begin + self._sequence_length + 1
        place = np.zeros_like(begin)
        stretches = [(epochs, begin, np.minimum(end, total), sequence, place)]
        over = end > total  # never beyond the next epoch: each holds at least one sequence
        if over.any():
            head = np.zeros_like(begin[over])
            stretches.append((epochs[over] + 1, head, (end - total)[over], sequence[over], (total - begin)[over]))
        return [
            self._order_around(epoch, start[rows], stop[rows]).pieces(
                start[rows], stop[rows], row[rows], at[rows], source, self.number_of(epoch)
            )
            for of, start, stop, row, at in stretches
            for epoch in np.unique(of).tolist()
            for rows in [of == epoch]
        ]

    def taken_after(self, sequences: int) -> Integers:
        """How many times each document of the source has been begun when so many sequences are taken: int64
        [documents]. O(documents + sequences of an epoch)."""
        store = self._store
        taken = np.zeros(store.document_count, np.int64) if self._pool is None else self._pool.taken.copy()
        if sequences == 0:
            return taken
        last = int(self.epoch_of(np.array([sequences - 1]))[0])
        for epoch in range(min(last, len(self._early))):
            taken[self._early[epoch][1]] += 1
        whole = max(0, last - len(self._early))
        taken[slice(None) if self._documents is None else self._documents] += whole
        first, after = self.first_sequence_of(last), self.first_sequence_of(last + 1)
        done = np.arange(sequences - first)
        begin = (first + permuted(self._key("sequences", last), after - first, done)) * self._sequence_length
        if first > 0:  # the last sequence of the epoch before may run over into this one
            begin = np.append(begin, (first - 1) * self._sequence_length)
        begin -= self._start_of(last)
        self._count_touched(taken, last, begin)
        tokens = self._start_of(last + 1) - self._start_of(last)
        if begin.max() + self._sequence_length > tokens:  # or one of this epoch into the next
            self._count_touched(taken, last + 1, begin - tokens)
        return taken

    def _count_touched(self, taken: Integers, epoch: int, begin: Integers) -> None:
        order = self.order(epoch)
        taken[order.documents[order.touched(begin, begin + self._sequence_length)]] += 1


@dataclass(frozen=True)
class Pool:
    """Some documents of a source, with how often each was taken before."""

    documents: Integers
    """Indices of those that are taken from now on: int64 [chosen]."""
    taken: Integers
    """How often each document of the source was begun before: int64 [documents]."""
    selection: int
    """Number of the choice of documents within the run, from 0: each has orders of its own."""

    @cached_property
    def most(self) -> int:
        """How often the document was taken that was taken most."""
        return int(self.taken[self.documents].max())

    def catching_up(self, store: TokenStore, sequence_length: int) -> list[tuple[int, Integers]]:
        """The epochs in which only documents come that were taken less often than others: (times that any of them
        was taken before, documents) of each.

        One for each number of times but the largest, so that nothing is repeated many times in a row to catch up.
        An epoch that is shorter than a sequence is left out.
        """
        before = self.taken[self.documents]
        epochs = [(times, self.documents[before <= times]) for times in np.unique(before)[:-1].tolist()]
        lengths = store.document_lengths
        return [(times, own) for times, own in epochs if lengths[own].sum() >= sequence_length]


class SourceText:
    """What a source gives over the whole run: one stream, or one after another where the choice of documents
    changes."""

    def __init__(
        self,
        store: TokenStore,
        name: str,
        seed: int,
        sequence_length: int,
        selections: Sequence[Selection],
        few: bool = False,
    ) -> None:
        """`selections`: from which of the source's sequences on which documents are taken. Raises `BadInput` when
        a choice of documents leaves less than one sequence."""
        self.firsts = np.array([first for first, _ in selections], np.int64)
        self.streams: list[SourceStream] = []
        for number, (first, limits) in enumerate(selections):
            pool = None
            if number or limits != Limits():
                taken = np.zeros(store.document_count, np.int64)
                if number:
                    taken = self.streams[-1].taken_after(first - selections[number - 1][0])
                pool = Pool(_chosen(store, name, limits, sequence_length), taken, number)
            self.streams.append(SourceStream(store, name, seed, sequence_length, pool, few))

    def pieces(self, numbers: Integers, sequence: Integers, source: int) -> list[Pieces]:
        """As `SourceStream.pieces`, of all streams."""
        places = np.searchsorted(self.firsts, numbers, side="right") - 1
        return [
            piece
            for place in np.unique(places).tolist()
            for rows in [places == place]
            for piece in self.streams[place].pieces(numbers[rows] - self.firsts[place], sequence[rows], source)
        ]


def _chosen(store: TokenStore, name: str, limits: Limits, sequence_length: int) -> Integers:
    lengths = store.document_lengths
    chosen = np.flatnonzero(limits.of(lengths))
    tokens = int(lengths[chosen].sum())
    if tokens < sequence_length:
        raise BadInput(
            f"data.mixture: a stage takes documents of {limits} from source {name!r}, which has "
            f"{counted(len(chosen), 'such documents')} of {counted(tokens, 'tokens')} in all, fewer than one "
            f"sequence of {sequence_length}. Change the limits, or name the sources they hold for in "
            "documents.sources"
        )
    return chosen


class SampleIndex:
    """Where every sample of a run comes from."""

    def __init__(
        self, corpus: Corpus, mixture: StagedMixture, seed: int, sequence_length: int, few: bool = False
    ) -> None:
        """`few`: only some batches are asked for, for which whole epochs need not be put in order.

        Raises `BadInput` when a stage's choice of documents leaves a source without a sequence.
        """
        self.mixture = mixture
        self.sequence_length = sequence_length
        self.texts = [
            SourceText(corpus.store(name, "train"), name, seed, sequence_length, mixture.selections(source), few)
            for source, name in enumerate(corpus.source_names)
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
            parts += self.texts[source].pieces(numbers[rows], rows, source)
        return Pieces.joined(parts)
