"""Rows of a file of signatures, fetched so that the file does not become this process's memory.

A mapped page counts as the memory of the process until the mapping is closed, and the system maps sixteen
neighbours with each page that is touched. So a mapping lives for a thousand rows at most.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stoker.data.deduplication.duplicates import Integers
from stoker.data.minhash import Signatures

_ROWS = 1 << 10


def stored_rows(file: Path, rows: Integers, permutations: int) -> Signatures:
    """Some rows of a file of little-endian uint32 [documents, permutations]: [rows, permutations]."""
    found = np.empty((len(rows), permutations), np.uint32)
    for start in range(0, len(rows), _ROWS):
        table = np.memmap(file, "<u4", mode="r").reshape(-1, permutations)
        found[start : start + _ROWS] = table[rows[start : start + _ROWS]]
        del table
    return found
