"""How diverse texts are, beside other texts and at the same length: counts alone, no embeddings.

Distinct-n (Li et al. 2016), the ratio of compression (Shaib et al. 2024), how much each document resembles another
one (MinHash, Broder 1997), and how much of the runs of tokens stands word for word in real text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import zstandard

from stoker.data.minhash import Hashes, Signatures, sign
from stoker.data.synthetic.runs import (
    SampledText,
    cut_to,
    distinct_share,
    of_one_length,
    runs_of,
    sampled,
    tokens_in,
)
from stoker.errors import BadInput

SIZES = (1, 2, 3, 4)
"""Lengths of runs whose distinct share is taken."""
_OVERLAP = 5
"""Tokens of a run that is looked for in real text."""
_COMPARED = 1000
"""Documents that are compared with one another."""
_ALIKE = 0.5
_SHINGLE, _PERMUTATIONS = 3, 128
_LEVEL = 9
_LEAST_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Diversity:
    """Figures of one body of text."""

    name: str
    documents: int
    """Different ones."""
    tokens: int
    """Looked at: the same for all bodies of text that are compared."""
    distinct: tuple[float, ...]
    """Different runs of 1, 2, 3 and 4 tokens over all such runs."""
    compression: float
    """Bytes over bytes when compressed (zstd): higher is more repetitive. Of the same number of bytes for all."""
    nearest: float
    """Mean, over documents, of the estimated Jaccard similarity with the most similar other one."""
    alike: float
    """Share of documents that have another one with a similarity of 0.5 or more."""
    in_real: float | None
    """Share of the runs of 5 tokens that stand in the real text, too; None without real text."""


def diversity_of(
    bodies: Mapping[str, Iterable[str]], real: Iterable[str] | None = None, tokens: int = 200_000
) -> list[Diversity]:
    """The figures of each body of text, all of the length of the shortest, `tokens` at most.

    Documents are cut to one length, too. The real text that overlaps are counted against is read whole. Raises
    `BadInput` where a body of text has too few tokens to say anything.
    """
    samples = {name: sampled(texts) for name, texts in bodies.items()}
    for name, sample in samples.items():
        _require_tokens(name, tokens_in(sample))
    samples = of_one_length(samples)
    length = min(tokens, *(tokens_in(sample) for sample in samples.values()))
    known = None if real is None else np.unique(runs_of((one.tokens for one in sampled(real)), _OVERLAP))
    size = min(_bytes_within(sample, length) for sample in samples.values())
    return [_diversity(name, sample, length, size, known) for name, sample in samples.items()]


def _require_tokens(name: str, tokens: int) -> None:
    if tokens < _LEAST_TOKENS:
        raise BadInput(
            f"{name} has {tokens} words or characters in different documents; at least {_LEAST_TOKENS} are needed "
            "to say how diverse a text is"
        )


def _diversity(name: str, sample: Sequence[SampledText], length: int, size: int, known: Hashes | None) -> Diversity:
    rows = cut_to(sample, length)
    nearest = nearest_similarities(sign([one.text for one in sample[:_COMPARED]], _SHINGLE, _PERMUTATIONS))
    runs = runs_of(rows, _OVERLAP)
    return Diversity(
        name,
        len(sample),
        sum(map(len, rows)),
        tuple(distinct_share(runs_of(rows, size)) for size in SIZES),
        compression_ratio(sample, size),
        float(nearest.mean()),
        float((nearest >= _ALIKE).mean()),
        None if known is None or not len(runs) else float(np.isin(runs, known).mean()),
    )


def _bytes_within(sample: Sequence[SampledText], tokens: int) -> int:
    """Bytes of the documents that have the first `tokens` tokens."""
    size = 0
    for one in sample:
        if tokens <= 0:
            break
        size += len(one.text.encode("utf-8", "surrogatepass"))
        tokens -= len(one.tokens)
    return size


def compression_ratio(sample: Iterable[SampledText], size: int) -> float:
    """Bytes over compressed bytes of the first `size` bytes of some documents, one after another."""
    joined = "\n".join(one.text for one in sample).encode("utf-8", "surrogatepass")[:size]
    return len(joined) / len(zstandard.ZstdCompressor(level=_LEVEL).compress(joined)) if joined else 1.0


def nearest_similarities(signatures: Signatures) -> npt.NDArray[np.float64]:
    """Of each document, the highest estimated similarity with any other: signatures [documents, permutations]."""
    nearest = np.zeros(len(signatures))
    for row in range(len(signatures) - 1):
        shares = (signatures[row + 1 :] == signatures[row]).mean(axis=1)
        nearest[row] = max(nearest[row], shares.max())
        np.maximum(nearest[row + 1 :], shares, out=nearest[row + 1 :])
    return nearest
