"""Random numbers that are a function of what they are for, never of what was drawn before.

A draw is named by a key (seed and words) and a counter. Any process can compute any
draw at any time, so resume, resize and replay need no generator state.
The mixing function is SplitMix64's finaliser (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_FEISTEL_ROUNDS = 8


def key_of(seed: int, *words: str | int) -> int:
    """A 64-bit key for one named stream of draws: the same on every machine and in every process."""
    text = "\x1f".join([str(seed), *(f"{type(word).__name__}:{word}" for word in words)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def draw_u64(key: int, counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Uniform 64-bit integers, one for each counter (any shape)."""
    with np.errstate(over="ignore"):
        z = (counters.astype(np.uint64) + np.uint64(1)) * _GOLDEN + np.uint64(key)
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        return z ^ (z >> np.uint64(31))


def permutation(key: int, size: int) -> npt.NDArray[np.int64]:
    """A permutation of 0..size-1: int64 of shape [size]."""
    return np.argsort(draw_u64(key, np.arange(size, dtype=np.uint64)), kind="stable")


def permuted(key: int, size: int, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The images of `places` (int64, any shape, each in 0..size-1) under a permutation of 0..size-1.

    Costs the same however large `size` is (below 2^62): nothing is made but the images asked for. A
    Feistel network permutes the smallest square that covers `size`; the few images that fall outside
    are sent through it again until they fall inside (cycle walking, Black & Rogaway 2002).
    Raises `ValueError` for a place outside.
    """
    if places.size and not 0 <= places.min() <= places.max() < size:
        raise ValueError(f"places {places.min()} to {places.max()} of a permutation of {size}")
    side = math.isqrt(size - 1) + 1
    images = _feistel(key, side, places.astype(np.uint64))
    while (outside := images >= np.uint64(size)).any():
        images[outside] = _feistel(key, side, images[outside])
    return images.astype(np.int64)


def _feistel(key: int, side: int, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    base = np.uint64(side)
    left, right = np.divmod(values, base)
    for number in range(_FEISTEL_ROUNDS):
        draws = draw_u64(key, right + np.uint64(number << 32)) % base
        left, right = right, (left + draws) % base
    return left * base + right
