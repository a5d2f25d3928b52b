"""Which runs of tokens a classifier goes by: hashes have no names, so the text is searched for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stoker.data.quality.classifier import Classifier
from stoker.data.quality.features import buckets_of, placed_buckets, tokens_of

_PIECE = re.compile(r"\w+|[^\w\s]")
_TEXTS = 2000
"""Documents that are searched for names, spread evenly over all."""


@dataclass(frozen=True, slots=True)
class TellingRun:
    """A run of tokens and what it says."""

    run: str
    weight: float
    """Of its bucket."""
    good: int
    bad: int
    """Documents of each side that it was seen in, among those searched."""


def telling_runs(
    texts: Sequence[str], good: npt.NDArray[np.bool_], classifier: Classifier, count: int = 20
) -> tuple[tuple[TellingRun, ...], tuple[TellingRun, ...]]:
    """The `count` runs that say most for a text, and against one: by weight, times how much greater the share of
    documents that they stand in is on their side.

    Where several runs share a bucket the one in most documents is shown.
    """
    chosen = np.unique(np.linspace(0, len(texts) - 1, min(_TEXTS, len(texts))).astype(np.int64)).tolist()
    seen = np.zeros((2, len(classifier.weights)))
    for place in chosen:
        buckets = np.unique(buckets_of(tokens_of(texts[place]), classifier.longest))
        seen[int(good[place]), buckets] += 1
    totals = np.bincount(good[np.asarray(chosen)], minlength=2)[:, None]
    more = seen[1] / totals[1] - seen[0] / totals[0]
    wanted = {}
    for side, sign in (("good", 1), ("bad", -1)):
        says = np.maximum(sign * classifier.weights.astype(np.float64), 0) * np.maximum(sign * more, 0)
        order = np.argsort(-says, kind="stable")[:count]
        wanted[side] = order[says[order] > 0]
    names = _names([texts[place] for place in chosen], np.concatenate([*wanted.values()]), classifier.longest)
    found = {
        side: tuple(
            TellingRun(
                names[bucket],
                float(classifier.weights[bucket]) * classifier.step,
                int(seen[1, bucket]),
                int(seen[0, bucket]),
            )
            for bucket in buckets.tolist()
            if bucket in names
        )
        for side, buckets in wanted.items()
    }
    return found["good"], found["bad"]


def _names(texts: Iterable[str], wanted: npt.NDArray[np.int64], longest: int) -> dict[int, str]:
    """The commonest run of each of some buckets, spelt out."""
    runs: dict[int, Counter[tuple[int, ...]]] = {int(bucket): Counter() for bucket in wanted}
    spelt: dict[int, str] = {}
    for text in texts:
        tokens = tokens_of(text)
        buckets, firsts, sizes = placed_buckets(tokens, longest)
        places = np.flatnonzero(np.isin(buckets, wanted))
        found = {
            (int(buckets[place]), tuple(tokens[firsts[place] : firsts[place] + sizes[place]].tolist()))
            for place in places.tolist()
        }
        for bucket, run in found:
            runs[bucket][run] += 1
        if found:
            needed = {token for _, run in found for token in run} - spelt.keys()
            spelt.update(_spelt(text, needed) if needed else ())
    names = {}
    for bucket, counter in runs.items():
        best = max(counter.items(), key=lambda pair: (pair[1], pair[0]), default=None)
        if best is not None and all(token in spelt for token in best[0]):
            names[bucket] = _joined([spelt[token] for token in best[0]])
    return names


def _spelt(text: str, needed: set[int]) -> Iterator[tuple[int, str]]:
    """Tokens of a text with their spelling, as far as a simpler way of cutting finds them."""
    for piece in dict.fromkeys(_PIECE.findall(text)):
        hashes = tokens_of(piece).tolist()
        letters = [piece] if len(hashes) == 1 else list(piece) if len(hashes) == len(piece) else []
        yield from ((token, letter) for token, letter in zip(hashes, letters, strict=False) if token in needed)


def _joined(tokens: Sequence[str]) -> str:
    """Tokens in a row, with a blank where both are written in ASCII."""
    written = tokens[0]
    for before, after in pairwise(tokens):
        written += (" " if before.isascii() and after.isascii() else "") + after
    return written
