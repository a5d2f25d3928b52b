"""What the classifier sees of a text: hashed runs of its tokens.

Tokens are those of near-duplicate removal (`stoker.data.minhash`): words in scripts that put spaces between them,
characters in scripts that do not, and single symbols; case and width are folded. So one model serves mixed text,
and no language has to be known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, mixed, token_hashes

BUCKET_BITS = 18
"""Weights of a model: 2^18 of one byte each."""
BUCKETS = 1 << BUCKET_BITS


def tokens_of(text: str) -> Hashes:
    """Hashes of the tokens of `text`, in order [tokens]."""
    return token_hashes(text)


@compiled
def bucket_of(run: Any) -> Any:
    """The bucket of a run's hash."""
    return np.int64(mixed(run) >> np.uint64(64 - BUCKET_BITS))


@compiled
def extended(run: Any, token: Any) -> Any:
    """The hash of a run with one more token."""
    return run * np.uint64(0xD1342543DE82EF95) + token


@compiled
def _buckets(tokens: Any, longest: int) -> Any:
    found = np.empty(longest * tokens.size, np.int32)
    count = 0
    for i in range(tokens.size):
        run = np.uint64(0)
        for size in range(min(longest, tokens.size - i)):
            run = extended(run, tokens[i + size])
            found[count] = bucket_of(run)
            count += 1
    return found[:count]


def buckets_of(tokens: Hashes, longest: int) -> npt.NDArray[np.int32]:
    """The buckets of all runs of 1 to `longest` tokens, in the order of their first token [runs]."""
    buckets: npt.NDArray[np.int32] = _buckets(tokens, longest)
    return buckets


@compiled
def summed(tokens: Any, longest: int, weights: Any) -> Any:
    """(sum of the weights of all runs of 1 to `longest` tokens, how many runs)."""
    total, count = np.int64(0), 0
    for i in range(tokens.size):
        run = np.uint64(0)
        for size in range(min(longest, tokens.size - i)):
            run = extended(run, tokens[i + size])
            total += weights[bucket_of(run)]
            count += 1
    return total, count


@compiled
def _runs(tokens: Any, longest: int) -> Any:
    buckets = np.empty(longest * tokens.size, np.int32)
    firsts, sizes = np.empty(buckets.size, np.int32), np.empty(buckets.size, np.int32)
    count = 0
    for i in range(tokens.size):
        run = np.uint64(0)
        for size in range(min(longest, tokens.size - i)):
            run = extended(run, tokens[i + size])
            buckets[count], firsts[count], sizes[count] = bucket_of(run), i, size + 1
            count += 1
    return buckets[:count], firsts[:count], sizes[:count]


def placed_buckets(
    tokens: Hashes, longest: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """`buckets_of` with the first token of each run and its length [runs]."""
    buckets, firsts, sizes = _runs(tokens, longest)
    return buckets, firsts, sizes
