"""Where documents came from, without reading the rows beside them.

A step's documents are scattered over the whole corpus: through the rows, each costs a row group of thousands. So
what `stoker data show` says of every document stands a second time, beside each part, as an Arrow file (IPC format)
of small record batches, any of which is read alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

ORIGIN = ("file", "position", "identifier")
"""Columns of a ledger that say where a document came from, and what it is called."""
BATCH_ROWS = 512
"""Rows of each record batch but the last."""
Origin = tuple[str | None, str | None, str | None]
"""`ORIGIN` of a row."""


def write_origins(stream: BinaryIO, part: pa.Table) -> None:
    """Write the origins of the rows of a part, in their order."""
    # A batch of LZ4 is read six times as fast as one of Zstandard, for 13 bytes more a row.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    nothing = pa.array([], pa.string())
    # One array a column, so that batches begin where they are looked for; put together anew, since of a slice Arrow
    # writes some of what lies behind it, which depends on how the rows came.
    columns = [pa.concat_arrays([*part[name].chunks, nothing]) for name in ORIGIN]
    origins = pa.table(columns, ORIGIN)
    with pa.ipc.new_file(stream, origins.schema, options=options) as writer:
        writer.write_table(origins, max_chunksize=BATCH_ROWS)


class Origins:
    """The origins that `write_origins` wrote of a part, left on disk."""

    def __init__(self, path: Path) -> None:
        """Raises `pyarrow.ArrowException` or `OSError` for a damaged file."""
        options = pa.ipc.IpcReadOptions(use_threads=False)
        self._reader = pa.ipc.open_file(pa.memory_map(str(path)), options=options)

    def at(self, rows: npt.NDArray[np.int64]) -> list[Origin]:
        """The origins of these rows of the part, ascending.

        Raises `pyarrow.ArrowException`, `OSError`, `IndexError`, `KeyError` or `ValueError` for a damaged file.
        """
        numbers, firsts = np.unique(rows // BATCH_ROWS, return_index=True)
        found: list[Origin] = []
        for number, own in zip(numbers.tolist(), np.split(rows % BATCH_ROWS, firsts[1:]), strict=True):
            batch = self._reader.get_batch(number)
            batch.validate(full=True)
            columns = [batch.column(name) for name in ORIGIN]
            for row in own.tolist():
                file, position, identifier = (column[row].as_py() for column in columns)
                found.append((file, position, identifier))
        return found
