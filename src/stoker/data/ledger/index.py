"""Finding a few among millions: identifiers by their hash, documents by their place."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint32]
PLACE = np.dtype("<u4")
"""How the number of a row lies on disk."""
_ENTRY_BYTES = 8 + PLACE.itemsize
_MASK = (1 << 64) - 1
MOST_ROWS = 1 << 32
"""A ledger cannot have more: its indexes hold rows in 32 bits."""


def hash_of(name: str) -> int:
    """A 64-bit hash of a name, the same on every machine and part of the format.

    FNV-1a (Fowler, Noll, Vo) over the UTF-8 bytes, with the last mixing of MurmurHash3. Half of a surrogate pair,
    which no name in a ledger has, counts as a question mark.
    """
    value = 0xCBF29CE484222325
    for byte in name.encode(errors="replace"):
        value = (value ^ byte) * 0x100000001B3 & _MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & _MASK
    return value ^ value >> 33


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
        wanted = np.uint64(hash_of(name))
        first, after = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        return np.asarray(self._rows[first:after], np.int64)

    def in_order(self) -> tuple[Hashes, Places]:
        """All hashes, ascending, and the rows that have them; equal hashes in the rows' order. Both [rows]."""
        return self._hashes, self._rows
