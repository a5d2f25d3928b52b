"""What a feed that is at fault gives: other samples than the step's, sequences of another length, or too late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from stoker.data.feeding import Feed, MicroBatch
from stoker.data.feeding.feed import Span
from stoker.data.feeding.mixture import Mixture
from stoker.data.feeding.sample_index import Integers
from stoker.recipe import Recipe
from stoker.recovery.dynamics.possible import changed_length
from stoker.recovery.faults import Fault

OF_BATCHES = ("repeat_batch", "oversample", "mixture_shift", "lost_rng", "length_change", "loader_stall")
_LOADER = "prefetch"
"""The name of the thread that makes batches ahead."""


class DisturbedFeed(Feed):
    """A feed with faults. What it says of a step (digest, spans, tokens) is true of what it gives."""

    faults: Sequence[Fault] = ()
    usual_step: Callable[[], float]
    """Seconds that a step takes."""

    @classmethod
    def disturb(cls, feed: Feed, faults: Sequence[Fault], usual_step: Callable[[], float]) -> None:
        """Give `feed` these faults. It stays the same object: whoever holds it sees the same batches."""
        feed.__class__ = cls
        assert isinstance(feed, DisturbedFeed)
        feed.faults, feed.usual_step = tuple(faults), usual_step

    def samples(self, step: int) -> Integers:
        """As the faults have it."""
        found = super().samples(step)
        for fault in self._of(step, "repeat_batch", "lost_rng"):
            other = fault.step - 1 if fault.kind == "repeat_batch" else step - fault.step + 1
            found = _partly(found, np.resize(super().samples(other), len(found)), fault.option("strength"))
        for fault in self._of(step, "oversample", "mixture_shift"):
            found = self._mixed(fault, step, len(found))
        return found

    def micro_batches(self, step: int, rank: int, ranks: int) -> list[MicroBatch]:
        """As the faults have it."""
        for fault in self._of(step, "loader_stall"):
            if threading.current_thread().name == _LOADER:
                time.sleep((1 + fault.option("strength")) * self.usual_step())
        other = self._other(step)
        return super().micro_batches(step, rank, ranks) if other is None else other.micro_batches(step, rank, ranks)

    def global_batch(self, step: int) -> MicroBatch:
        """As the faults have it."""
        other = self._other(step)
        return super().global_batch(step) if other is None else other.global_batch(step)

    def spans(self, step: int) -> list[Span]:
        """As the faults have it."""
        other = self._other(step)
        return super().spans(step) if other is None else other.spans(step)

    def valid_tokens(self, step: int) -> int:
        """As the faults have it."""
        other = self._other(step)
        return super().valid_tokens(step) if other is None else other.valid_tokens(step)

    def _digest(self, step: int, whole: list[MicroBatch] | None) -> str:
        other = self._other(step) if whole is None else None
        return super()._digest(step, whole) if other is None else other._digest(step, None)

    def recipe_at(self, step: int) -> Recipe:
        """The recipe by which the step's sequences are as long as they are."""
        other = self._other(step)
        return self.recipe if other is None else other.recipe

    def _of(self, step: int, *kinds: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind in kinds and fault.covers(step)]

    def _other(self, step: int) -> Feed | None:
        """The feed of sequences of another length, where they are."""
        return next((self._feeds[fault] for fault in self._of(step, "length_change")), None)

    @cached_property
    def _feeds(self) -> dict[Fault, Feed]:
        found = {}
        for fault in self.faults:
            if fault.kind == "length_change":
                changes = {"sequence_length": changed_length(fault, self.recipe)}
                training = self.recipe.training.model_copy(update=changes)
                feed = Feed(self.corpus, self.recipe.model_copy(update={"training": training}))
                DisturbedFeed.disturb(feed, [one for one in self.faults if one.kind != fault.kind], self.usual_step)
                found[fault] = feed
        return found

    def _mixed(self, fault: Fault, step: int, count: int) -> Integers:
        """Samples by another mixture: those that would have come after the run's end, so that none comes twice."""
        wrong, base = self._mixtures[fault]
        training = self.recipe.training
        first = training.samples_before(step) - training.samples_before(fault.step)
        sources, numbers = wrong.locate(np.arange(first, first + count))
        usual = self._index.mixture
        found = np.empty(count, np.int64)
        for source in np.unique(sources).tolist():
            rows = sources == source
            found[rows] = usual.samples_of(source, numbers[rows] + base[source])
        return found

    @cached_property
    def _mixtures(self) -> dict[Fault, tuple[Mixture, Integers]]:
        """Of each fault: the wrong mixture; how much of each source the right one uses."""
        usual = self._index.mixture
        base = usual.count_before(self.recipe.training.samples_before(self.recipe.training.steps + 1))
        return {
            fault: (Mixture(self._wrong_weights(fault)), base)
            for fault in self.faults
            if fault.kind in ("oversample", "mixture_shift")
        }

    def _wrong_weights(self, fault: Fault) -> list[float]:
        names, counts = self.corpus.source_names, np.array(self._index.mixture.last.counts, float)
        present = np.flatnonzero(counts)
        other = np.zeros_like(counts)
        if fault.kind == "mixture_shift":
            order = present[np.argsort(counts[present], kind="stable")]
            other[order] = counts[order[::-1]]
        else:
            name = fault.word("source")
            wanted = names.index(name) if name else present[np.argmin(counts[present])]
            other[wanted] = counts.sum()
        strength = fault.option("strength")
        return [round(float(one), 3) for one in ((1 - strength) * counts + strength * other) / counts.sum()]


def _partly(usual: Integers, others: Integers, share: float) -> Integers:
    """`usual` with a share of `others`, spread evenly, so that every rank has its part."""
    return np.where(spread(len(usual), share), others, usual)


def spread(count: int, share: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of `count` places are of a share of them, at least one, spread evenly."""
    wanted = max(1, round(share * count))
    steps = np.arange(count + 1) * wanted // count
    return steps[1:] > steps[:-1]
