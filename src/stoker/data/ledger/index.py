"""Finding a few among millions: identifiers by their hash, documents by their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stoker.data.kernels import compiled

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint32]
PLACE = np.dtype("<u4")
"""How the number of a row lies on disk."""
_ENTRY_BYTES = 8 + PLACE.itemsize
MOST_ROWS = 1 << 32
"""A ledger cannot have more: its indexes hold rows in 32 bits."""


def hashes_of(names: pa.StringArray) -> Hashes:
    """A 64-bit hash of each name (no nulls), the same on every machine: uint64 [names].

    FNV-1a (Fowler, Noll, Vo) over the UTF-8 bytes, with the last mixing of MurmurHash3.
    """
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


def write_identifiers(stream: BinaryIO, hashes: Hashes) -> None:
    """Write the index of the rows whose identifiers have these hashes, in the order of the rows."""
    order = np.argsort(hashes, kind="stable")
    stream.write(hashes[order].astype("<u8").tobytes())
    stream.write(order.astype(PLACE).tobytes())


class Identifiers:
    """The index that `write_identifiers` wrote, left on disk."""

    def __init__(self, path: Path, rows: int) -> None:
        """`rows` is how many there are. Raises `ValueError` when the file is not as large as they need."""
        if path.stat().st_size != rows * _ENTRY_BYTES:
            raise ValueError(f"{rows * _ENTRY_BYTES:,} bytes expected, found {path.stat().st_size:,}")
        self._hashes = np.memmap(path, "<u8", mode="r", shape=(rows,)) if rows else np.empty(0, np.uint64)
        self._rows = (
            np.memmap(path, PLACE, mode="r", offset=8 * rows, shape=(rows,)) if rows else np.empty(0, np.uint32)
        )

    def rows(self, name: str) -> Rows:
        """Rows that may have this identifier, in order; now and then one that has another with the same hash."""
        wanted = hashes_of(pa.array([name], pa.string()))[0]
        first, after = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        return np.asarray(self._rows[first:after], np.int64)

    def by_row(self) -> Hashes:
        """The hash of each row's identifier: uint64 [rows]."""
        hashes = np.empty(len(self._rows), np.uint64)
        hashes[self._rows] = self._hashes
        return hashes
