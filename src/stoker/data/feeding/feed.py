"""The batches of a run: what every rank sees at every step, as a function of (corpus, recipe, step)."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stoker.data.corpus import Corpus
from stoker.data.feeding.held_out import HeldOut, read_held_out
from stoker.data.feeding.micro_batch import MicroBatch
from stoker.data.feeding.packing import as_micro_batch, last_places, pack
from stoker.data.feeding.prefetch import Prefetch
from stoker.data.feeding.sample_index import Integers, SampleIndex
from stoker.data.feeding.staged_mixture import StagedMixture
from stoker.data.feeding.stages import Segment, segment_at, segments_of
from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.recipe import Recipe

_LAST_STEP = 2**40
_STEPS_AHEAD = 2
_DIGESTS_KEPT = 16


@dataclass(frozen=True)
class Span:
    """A stretch of one document that a sample holds."""

    sample: int
    place: int
    """Where in the sequence it begins."""
    source: str
    epoch: int
    """How many times the whole source had been taken before, from 0."""
    document: int
    """Index within the source's `train` split."""
    start: int
    """First token within the document."""
    stop: int
    """After the last token within the document."""


class Feed:
    """Feeds one run from a prepared corpus. Holds nothing that would have to be saved."""

    def __init__(self, corpus: Corpus, recipe: Recipe, few_steps: bool = False) -> None:
        """With `few_steps` a step or some are given without the work that pays over a whole epoch.

        Raises `BadInput` when a source that is to be sampled has fewer tokens than one sequence, or would be
        passed over more often than the recipe allows."""
        self.corpus = corpus
        self.recipe = recipe
        self._few_steps = few_steps
        self.sequence_length = recipe.training.sequence_length
        self._stores = [corpus.store(name, "train") for name in corpus.source_names]
        mixture = StagedMixture(segments_of(recipe, train_tokens(corpus, recipe)))
        self._index = SampleIndex(corpus, mixture, recipe.seed, self.sequence_length, few_steps)
        self._digests: OrderedDict[int, str] = OrderedDict()
        # What is asked of one step is told from the same pieces.
        self._pieces = lru_cache(maxsize=1)(lambda step: self._index.pieces(self.samples(step)))

    def samples(self, step: int) -> Integers:
        """Numbers of the samples in the global batch of `step` (the first step is 1): int64 [batch]."""
        if step < 1:
            raise BadInput(f"steps are counted from 1, not {step}")
        if step > _LAST_STEP:
            raise BadInput(f"there is no step {step}: samples are counted with 63 bits")
        first = self.recipe.training.samples_before(step)
        return np.arange(first, first + self.recipe.training.batch_size_at(step))

    def global_batch(self, step: int) -> MicroBatch:
        """The whole batch of `step`, over all ranks."""
        return self._batch(self.samples(step))

    def micro_batches(self, step: int, rank: int, ranks: int) -> list[MicroBatch]:
        """What data-parallel rank `rank` of `ranks` sees at `step`: its contiguous part of the global batch.

        The parts of all ranks, in order, are the global batch, whatever their number; each rank has as
        many micro-batches as any other. Raises `BadInput` when the batch does not divide by `ranks`.
        """
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} of {ranks}")
        samples = self.samples(step)
        share = Layout(dp_replicate=ranks).sequences_per_rank(len(samples))
        batch = self._batch(samples[rank * share : (rank + 1) * share])
        size = self.recipe.micro_batch_size_at(step)
        return [batch.rows(start, start + size) for start in range(0, share, size)]

    def steps(self, first: int, last: int, rank: int, ranks: int) -> Prefetch[int, tuple[int, list[MicroBatch]]]:
        """(step, micro-batches of `rank`) for steps `first` to `last`, both included, made ahead in a thread.

        Rank 0's thread computes the steps' digests as well, for `digest`. Close it, or drop it, to end early.
        """

        def make(step: int) -> tuple[int, list[MicroBatch]]:
            batches = self.micro_batches(step, rank, ranks)
            if rank == 0:
                self._remember_digest(step, self._digest(step, batches if ranks == 1 else None))
            return step, batches

        return Prefetch(make, range(first, last + 1), _STEPS_AHEAD)

    def spans(self, step: int) -> list[Span]:
        """Where the inputs of the global batch of `step` come from, in order."""
        samples = self.samples(step)
        pieces = self._pieces(step)
        inputs = np.minimum(pieces.length, self.sequence_length - pieces.place)
        return [
            Span(
                sample=int(samples[pieces.sequence[i]]),
                place=int(pieces.place[i]),
                source=self.corpus.source_names[pieces.source[i]],
                epoch=int(pieces.epoch[i]),
                document=int(pieces.document[i]),
                start=int(pieces.offset[i]),
                stop=int(pieces.offset[i] + inputs[i]),
            )
            for i in np.flatnonzero(inputs > 0).tolist()
        ]

    def valid_tokens(self, step: int) -> int:
        """Targets that count in the global batch of `step`; reads no tokens."""
        pieces = self._pieces(step)
        return len(self.samples(step)) * self.sequence_length - len(last_places(pieces, self.sequence_length)[0])

    def digest(self, step: int) -> str:
        """BLAKE2b (128 bits, hexadecimal) of the global batch's tokens as little-endian uint32, in order."""
        known = self._digests.get(step)
        return known if known is not None else self._remember_digest(step, self._digest(step, None))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The mixtures of the run, in order."""
        return self._index.mixture.segments

    def shares(self, step: int) -> dict[str, float]:
        """Share of each source that the mixture in force at `step` gives it."""
        shares = segment_at(self.segments, step).shares
        return dict(zip(self.corpus.source_names, shares, strict=True))

    def epochs(self, step: int) -> dict[str, float]:
        """Times that each source will have been taken whole when `step` is done."""
        after = int(self.samples(step)[-1]) + 1
        counts = self._index.mixture.count_before(after).tolist()
        return {
            name: count * self.sequence_length / store.token_count if count else 0.0
            for name, count, store in zip(self.corpus.source_names, counts, self._stores, strict=True)
        }

    def held_out(self, source: str, max_sequences: int | None = None) -> HeldOut:
        """The first `max_sequences` sequences (None: all) of a source's held-out text; the same every time."""
        return read_held_out(
            self.corpus, source, self.sequence_length, max_sequences, self.recipe.evaluation.micro_batch_size
        )

    def _batch(self, samples: Integers) -> MicroBatch:
        pieces = self._index.pieces(samples)
        return as_micro_batch(pieces, self._stores, samples, self._index.sources(samples), self.sequence_length)

    def _digest(self, step: int, whole: list[MicroBatch] | None) -> str:
        digest = hashlib.blake2b(digest_size=16)
        if whole is None:
            packed = pack(
                self._pieces(step), self._stores, len(self.samples(step)), self.sequence_length, self._few_steps
            )
            digest.update(packed.tokens.astype("<u4").tobytes())
        for batch in whole or ():
            digest.update(batch.tokens.numpy().astype("<u4").tobytes())
        return digest.hexdigest()

    def _remember_digest(self, step: int, digest: str) -> str:
        self._digests[step] = digest
        while len(self._digests) > _DIGESTS_KEPT:
            self._digests.popitem(last=False)
        return digest


def train_tokens(corpus: Corpus, recipe: Recipe) -> dict[str, int]:
    """Training tokens of each of the corpus's sources, in its order.

    Raises `BadInput` when the recipe has a source that the corpus has not.
    """
    if missing := [source.name for source in recipe.data.sources if source.name not in corpus.source_names]:
        raise BadInput(
            f"the prepared corpus {corpus.folder} has no source {', '.join(missing)}; it has "
            f"{', '.join(corpus.source_names)}. Prepare it again with `stoker prepare RECIPE`."
        )
    return {name: corpus.store(name, "train").token_count for name in corpus.source_names}
