"""A table of 64-bit hashes with open addressing: to look for many hashes in a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled

Hashes = npt.NDArray[np.uint64]
HashTable = tuple[Hashes, npt.NDArray[np.int32]]
"""(hash, its number or -1 where nothing is) at each place; the number of places is a power of 2 [places]."""


def hash_table(hashes: Hashes) -> HashTable:
    """A table of distinct `hashes`, each with its position among them, a quarter full at most."""
    places = 16
    while places < 4 * len(hashes):
        places *= 2
    keys, numbers = np.zeros(places, np.uint64), np.full(places, -1, np.int32)
    _fill(hashes, keys, numbers)
    return keys, numbers


def numbers_of(hashes: Hashes, table: HashTable) -> npt.NDArray[np.int32]:
    """The number in `table` of each of `hashes`, -1 where it is not in it [hashes]."""
    found: npt.NDArray[np.int32] = _found(hashes, *table)
    return found


@compiled
def _fill(hashes: Any, keys: Any, numbers: Any) -> None:
    for i in range(hashes.size):
        place = np.int64(hashes[i] >> np.uint64(32)) & (keys.size - 1)
        while numbers[place] >= 0:
            place = (place + 1) & (keys.size - 1)
        keys[place], numbers[place] = hashes[i], i


@compiled
def _found(hashes: Any, keys: Any, numbers: Any) -> Any:
    found = np.empty(hashes.size, np.int32)
    for i in range(hashes.size):
        place = np.int64(hashes[i] >> np.uint64(32)) & (keys.size - 1)
        while numbers[place] >= 0 and keys[place] != hashes[i]:
            place = (place + 1) & (keys.size - 1)
        found[i] = numbers[place]
    return found
