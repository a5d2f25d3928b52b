"""Numbers by 64-bit keys in a temporary file, given back part by part with equal keys together."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stoker.data.deduplication.duplicates import Integers
from stoker.data.minhash import Hashes

_ROW = np.dtype([("key", "<u8"), ("value", "<i8")])
_READ_ROWS = 1 << 20


class KeyedFile:
    """Rows of (key, value), 16 bytes each on disk; in memory is one part at a time."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._rows = 0

    def add(self, keys: Hashes, values: Integers) -> None:
        """Append rows."""
        rows = np.empty(len(keys), _ROW)
        rows["key"], rows["value"] = keys, values
        self._file.write(rows.tobytes())
        self._rows += len(rows)

    def parts(self, rows_in_memory: int = 1 << 24) -> Iterator[tuple[Hashes, Integers]]:
        """All rows ordered by key and value within each part; all rows of a key are in one part.

        Keys are divided among as many parts as keep about `rows_in_memory` rows in each, if they are spread evenly.
        """
        parts = max(1, -(-self._rows // rows_in_memory))
        for part in range(parts):
            rows = np.concatenate([np.empty(0, _ROW), *self._of_part(part, parts)])
            rows = rows[np.lexsort((rows["value"], rows["key"]))]
            yield np.ascontiguousarray(rows["key"]), np.ascontiguousarray(rows["value"])

    def _of_part(self, part: int, parts: int) -> Iterator[np.ndarray]:
        self._file.seek(0)
        while chunk := self._file.read(_READ_ROWS * _ROW.itemsize):
            rows = np.frombuffer(chunk, _ROW)
            yield rows[rows["key"] % np.uint64(parts) == part]
