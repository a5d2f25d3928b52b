"""Which documents fall to a share of their group: those a source does not keep the best of, and both tails of
perplexity.

What a score or a perplexity means differs from source to source and from language to language, so thresholds are
taken from the documents at hand: the recipe says what share is dropped, and the measures, recorded when a document
was read, say which documents these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from stoker.data.quality.characters import BITS
from stoker.data.quality.classifier import SCORE
from stoker.recipe import Cleaning

Integers = npt.NDArray[np.int64]

REASONS = ("not_among_best", "least_surprising", "most_surprising")
"""Reasons under which documents are dropped here."""


class Measured(Protocol):
    """Documents with measures: the candidates of selection."""

    names: list[str]
    sources: Integers

    def measure(self, name: str) -> npt.NDArray[np.float64]:
        """What an operator measured of each document, NaN where it did not: [documents]."""

    def column(self, name: str) -> Sequence[Any]:
        """A column of the first stage's table: [documents]."""


@dataclass(frozen=True)
class Cut:
    """What a share takes of one group of documents."""

    reason: str
    group: str
    """A source, or a kind and language."""
    measured: int
    """Documents of the group that have the measure."""
    threshold: float
    """Documents beyond it are dropped; one that equals it is kept."""
    dropped: Integers
    """Documents, in order."""

    def as_json(self) -> dict[str, Any]:
        """As a plain dictionary, with the number of documents dropped."""
        return {**asdict(self), "dropped": len(self.dropped)}


def cuts_of(candidates: Measured, cleaning: Cleaning) -> Iterator[Cut]:
    """What the shares of a recipe take of each group, in the order of `REASONS`; a document may be in several."""
    if (best := cleaning.quality.keep_best) is not None:
        scores = candidates.measure(SCORE)
        yield from _cuts(
            "not_among_best", scores, candidates.sources, candidates.names.__getitem__, "below", 1 - best
        )
    tails = cleaning.perplexity
    if tails.drop_lowest or tails.drop_highest:
        bits, groups, names = candidates.measure(BITS), *kinds_and_languages(candidates)
        yield from _cuts("least_surprising", bits, groups, names.__getitem__, "below", tails.drop_lowest)
        yield from _cuts("most_surprising", bits, groups, names.__getitem__, "above", tails.drop_highest)


def kinds_and_languages(candidates: Measured) -> tuple[Integers, list[str]]:
    """(number of the group of each document [documents], names of the groups such as `prose zh`)."""
    pairs = [
        f"{kind} {language or 'unknown'}"
        for kind, language in zip(candidates.column("kind"), candidates.column("language"), strict=True)
    ]
    names, groups = np.unique(np.asarray(pairs, np.str_), return_inverse=True)
    return groups.astype(np.int64), names.tolist()


def _cuts(
    reason: str,
    values: npt.NDArray[np.float64],
    groups: Integers,
    name: Callable[[int], str],
    side: Literal["below", "above"],
    share: float,
) -> Iterator[Cut]:
    for group in np.unique(groups).tolist() if share else ():
        own = np.flatnonzero((groups == group) & ~np.isnan(values))
        if (count := int(share * len(own) + 1e-9)) == 0:
            continue
        ordered = np.sort(values[own])
        threshold = ordered[count] if side == "below" else ordered[len(own) - 1 - count]
        beyond = values[own] < threshold if side == "below" else values[own] > threshold
        yield Cut(reason, name(group), len(own), float(threshold), own[beyond])
