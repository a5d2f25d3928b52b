"""Hashes of many names at once, for the index of identifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from stoker.data.kernels import compiled
from stoker.data.ledger.index import Hashes


def hashes_of(names: pa.StringArray) -> Hashes:
    """`stoker.data.ledger.index.hash_of` for each name (no nulls): uint64 [names]."""
    if not len(names):
        return np.empty(0, np.uint64)
    _, ends, text = names.buffers()
    offsets = np.frombuffer(ends, np.int32)[names.offset : names.offset + len(names) + 1]
    found: Hashes = _hashed(offsets, np.frombuffer(text or b"", np.uint8))
    return found


@compiled
def _hashed(offsets: Any, text: Any) -> Any:
    hashes = np.empty(offsets.size - 1, np.uint64)
    for i in range(hashes.size):
        value = np.uint64(0xCBF29CE484222325)
        for j in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(text[j])) * np.uint64(0x100000001B3)
        value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        hashes[i] = value ^ (value >> np.uint64(33))
    return hashes
