"""Samples of equal length, and the runs of tokens in them: all figures of diversity depend on the length of a
text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker.data.minhash import Hashes, shingle_hashes, token_hashes

_PER_DOCUMENT = 2000
"""Tokens of one document that are looked at: its beginning."""


@dataclass(frozen=True)
class SampledText:
    """A document with its tokens."""

    text: str
    tokens: Hashes
    """At most `_PER_DOCUMENT` [tokens]."""


def sampled(texts: Iterable[str]) -> list[SampledText]:
    """Different documents in an order that their content alone decides, those without tokens left out.

    Equal texts come once: how many repetitions there are is what deduplication says.
    """
    distinct = {hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(): text for text in texts}
    found = (SampledText(distinct[key], token_hashes(distinct[key])) for key in sorted(distinct))
    return [_shortened(one, _PER_DOCUMENT) for one in found if len(one.tokens)]


def of_one_length(samples: Mapping[str, Sequence[SampledText]]) -> dict[str, list[SampledText]]:
    """The documents of several bodies of text, the longer ones cut, so that a sample of each has about as many.

    Long documents repeat their own words: a few of them are not to be compared with many short ones. The limit is
    the mean length in the body whose documents are shortest.
    """
    limit = min((tokens_in(own) // len(own) for own in samples.values() if own), default=_PER_DOCUMENT)
    return {name: [_shortened(one, max(limit, 1)) for one in own] for name, own in samples.items()}


def _shortened(one: SampledText, tokens: int) -> SampledText:
    if len(one.tokens) <= tokens:
        return one
    return SampledText(one.text[: len(one.text) * tokens // len(one.tokens)], one.tokens[:tokens])


def tokens_in(documents: Iterable[SampledText]) -> int:
    """How many tokens there are to look at."""
    return sum(len(one.tokens) for one in documents)


def cut_to(documents: Iterable[SampledText], tokens: int) -> list[Hashes]:
    """The tokens of the first documents, of the last only its beginning, `tokens` in all where there are so
    many."""
    taken: list[Hashes] = []
    left = tokens
    for one in documents:
        if left <= 0:
            break
        taken.append(one.tokens[:left])
        left -= len(taken[-1])
    return taken


def runs_of(rows: Iterable[Hashes], size: int) -> npt.NDArray[np.uint64]:
    """Hashes of all runs of `size` tokens that lie in one document, repeated ones included [runs]."""
    return np.concatenate([np.empty(0, np.uint64), *_long_enough(rows, size)])


def _long_enough(rows: Iterable[Hashes], size: int) -> Iterator[Hashes]:
    return (shingle_hashes(row, size) for row in rows if len(row) >= size)


def distinct_share(runs: npt.NDArray[np.uint64]) -> float:
    """Different runs over runs; 0 where there are none."""
    return len(np.unique(runs)) / len(runs) if len(runs) else 0.0
