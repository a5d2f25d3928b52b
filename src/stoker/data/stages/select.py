"""Second stage: which candidates are held out, which repeat others, and which are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication import Duplicate, exact_duplicates, near_duplicates, near_training_text
from stoker.data.stages.candidates import Candidates, Integers
from stoker.durable_files import durable_file
from stoker.recipe import Data

VERDICTS = (
    "train",
    "held_out",
    "exact_duplicate",
    "near_duplicate",
    "held_out_exact_duplicate",
    "held_out_near_duplicate",
    "held_out_near_training_text",
)
"""What can become of a candidate; all but the first two are reasons for dropping it."""
TRAIN, HELD_OUT = 0, 1
_SMALLEST_SPLIT_SOURCE = 10
"""A source of at least this many documents always has one held out (if any are)."""


@dataclass(frozen=True)
class Selection:
    """What became of each candidate; arrays of shape [candidates]."""

    verdict: npt.NDArray[np.int8]
    """Index into `VERDICTS`."""
    duplicate_of: Integers
    """Candidate that a removed one repeats, -1 otherwise."""
    similarity: npt.NDArray[np.float64]
    """Jaccard similarity with it, NaN otherwise."""

    def of(self, verdict: int) -> Integers:
        """Candidates with a verdict, in order."""
        return np.flatnonzero(self.verdict == verdict)

    def write(self, path: Path) -> None:
        """Write to `path`, whole or not at all."""
        with durable_file(path) as stream:
            for array in (self.verdict, self.duplicate_of, self.similarity):
                np.save(stream, array)

    @classmethod
    def read(cls, path: Path) -> Selection:
        """What `write` wrote."""
        with open(path, "rb") as stream:
            return cls(np.load(stream), np.load(stream), np.load(stream))


def select(candidates: Candidates, data: Data) -> Selection:
    """Hold out by content, then remove repetitions across sources, then clean what is held out.

    Held-out documents are chosen before anything is removed, so that no choice of what to keep can move
    text between the splits, and one text is on one side only.
    """
    count = len(candidates)
    verdict = np.zeros(count, np.int8)
    verdict[_held_out(candidates, data.held_out)] = HELD_OUT
    selection = Selection(verdict, np.full(count, -1, np.int64), np.full(count, np.nan))
    training = _without_repetitions(candidates, selection, data, TRAIN)
    held_out = _without_repetitions(candidates, selection, data, HELD_OUT)
    settings = data.deduplication
    if len(training) and len(held_out):
        found = near_training_text(
            candidates.texts(held_out),
            candidates.texts(training),
            settings,
            candidates.signatures(held_out, settings),
            candidates.signatures(training, settings),
        )
        _mark(selection, found, "held_out_near_training_text", held_out, training)
    return selection


def _held_out(candidates: Candidates, share: float) -> Integers:
    """Candidates whose content, read as a number, falls below the share; the lowest one if none does."""
    if share <= 0 or not len(candidates):
        return np.empty(0, np.int64)
    drawn = np.frombuffer(b"".join(content[:8] for content in candidates.contents), ">u8").astype(np.uint64)
    threshold = np.uint64(int(share * 2**64))
    chosen = drawn < threshold
    for source in range(len(candidates.names)):
        own = candidates.sources == source
        if not (chosen & own).any() and own.sum() >= _SMALLEST_SPLIT_SOURCE:
            lowest = drawn[own].min()
            if (drawn[own] != lowest).any():  # else all its texts are one and the same
                chosen |= own & (drawn == lowest)
    return np.flatnonzero(chosen)


def _without_repetitions(candidates: Candidates, selection: Selection, data: Data, split: int) -> Integers:
    """Mark exact and near duplicates within a split; returns the candidates that stay."""
    settings = data.deduplication
    prefix = "held_out_" if split == HELD_OUT else ""
    if settings.exact:
        documents = selection.of(split)
        found = exact_duplicates(candidates.contents[document] for document in documents.tolist())
        _mark(selection, found, f"{prefix}exact_duplicate", documents, documents)
    if settings.near:
        documents = selection.of(split)
        signatures = candidates.signatures(documents, settings)
        found = near_duplicates(candidates.texts(documents), settings, signatures)
        _mark(selection, found, f"{prefix}near_duplicate", documents, documents)
    return selection.of(split)


def _mark(
    selection: Selection, found: list[Duplicate], reason: str, documents: Integers, originals: Integers
) -> None:
    for duplicate in found:
        document = documents[duplicate.index]
        selection.verdict[document] = VERDICTS.index(reason)
        selection.duplicate_of[document] = originals[duplicate.duplicate_of]
        selection.similarity[document] = duplicate.similarity
