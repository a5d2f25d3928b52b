"""Columns of text in Parquet files, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from stoker.data.document import Document, Fault
from stoker.data.reading.read import Reading
from stoker.data.reading.units import Part

_BATCH_ROWS = 256


def read(reading: Reading, part: Part) -> Iterator[Document | Fault]:
    """The text column's rows (numbered from 1). A damaged row group is one fault; the others are read."""
    try:
        file = pq.ParquetFile(_source_of(part))
    except pa.ArrowException as error:
        # The table of contents is at the end, so a truncated file cannot be read at all.
        reason = "truncated" if _begins_like_parquet(part) else "damaged"
        yield reading.fault("file", reason, f"not a complete Parquet file ({_first_line(error)})")
        return
    with file:
        columns = _columns(reading, file)
        if isinstance(columns, Fault):
            yield columns
            return
        first_row = part.first_line
        stop = file.num_row_groups if part.stop is None else part.stop
        for group in range(part.start, stop):
            rows = file.metadata.row_group(group).num_rows
            yield from _row_group(reading, file, group, columns, first_row, first_row + rows - 1)
            first_row += rows


def _columns(reading: Reading, file: pq.ParquetFile) -> list[str] | Fault:
    schema, source = file.schema_arrow, reading.source
    if source.text_field not in schema.names:
        found = ", ".join(schema.names[:8]) or "none"
        return reading.fault(
            "file", "no_text_field", f"expected a column `{source.text_field}` (text_field), found: {found}"
        )
    kind = schema.field(source.text_field).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return reading.fault("file", "wrong_type", f"column `{source.text_field}` must be a string, found {kind}")
    columns = [source.text_field]
    if source.id_field is not None and source.id_field in schema.names and source.id_field not in columns:
        columns.append(source.id_field)
    return columns


def _row_group(
    reading: Reading, file: pq.ParquetFile, group: int, columns: list[str], first: int, last: int
) -> Iterator[Document | Fault]:
    row = first
    try:
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False):
            texts = batch.column(0)
            identifiers = batch.column(1) if len(columns) > 1 else None
            for index in range(batch.num_rows):
                yield _document(reading, row, texts[index], None if identifiers is None else identifiers[index])
                row += 1
    except (pa.ArrowException, OSError) as error:
        yield reading.fault(f"rows {row} to {last}", "damaged", f"these rows cannot be read ({_first_line(error)})")


def _document(reading: Reading, row: int, text: pa.Scalar, identifier: pa.Scalar | None) -> Document | Fault:
    try:
        value = text.as_py()
        named = None if identifier is None or not identifier.is_valid else str(identifier.as_py())
    except UnicodeDecodeError as error:
        return reading.fault(f"row {row}", "undecodable", f"expected UTF-8 text ({error.reason})")
    return reading.document(f"row {row}", "" if value is None else value, named)


def _source_of(part: Part) -> Path | BinaryIO:
    path = part.file.path
    return path if isinstance(path, Path) else path.open()


def _begins_like_parquet(part: Part) -> bool:
    with part.file.path.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["unknown"])[0][:200]
