"""Columns of text in Parquet files, a batch of rows at a time, in bounded memory whatever a file unpacks to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from stoker.data.document import Document, Fault
from stoker.data.reading.parquet_pages import UnreadableHeader, largest_page
from stoker.data.reading.read import Reading
from stoker.data.reading.units import Part

_BATCH_ROWS = 256
_BATCH_BYTES = 256 << 20
"""A batch of rows holds no more than this."""
_PAGE_BYTES = 128 << 20
"""A page that unpacks to more is not read, unless a single document may be so large. pyarrow takes some five times
as much on the way; those who write files cut pages at about a megabyte."""


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
    wanted = (source.text_field, source.id_field, source.url_field)
    return [name for name in dict.fromkeys(wanted) if name is not None and name in schema.names]


def _row_group(
    reading: Reading, file: pq.ParquetFile, group: int, columns: list[str], first: int, last: int
) -> Iterator[Document | Fault]:
    row = first
    try:
        page = _largest_page(reading, file, group, columns)
        if page > max(_PAGE_BYTES, reading.maximum_bytes):
            detail = f"these rows have a page that unpacks to {page} bytes; write the file with smaller pages"
            yield reading.fault(f"rows {row} to {last}", "too_large", detail)
            return
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(page, 1)))
        for batch in file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False):
            for index in range(batch.num_rows):
                yield _document(reading, row, {name: batch[name][index] for name in columns})
                row += 1
    except (pa.ArrowException, OSError, UnreadableHeader) as error:
        yield reading.fault(f"rows {row} to {last}", "damaged", f"these rows cannot be read ({_first_line(error)})")


def _largest_page(reading: Reading, file: pq.ParquetFile, group: int, columns: list[str]) -> int:
    """Unpacked bytes of the largest page of some columns; 0 where the file is elsewhere, and would be fetched twice
    for it. Raises `UnreadableHeader` and `OSError`."""
    path, metadata, largest = reading.file.path, file.metadata.row_group(group), 0
    if not isinstance(path, Path):
        return 0
    with path.open("rb") as stream:
        for number in range(metadata.num_columns):
            column = metadata.column(number)
            if column.path_in_schema in columns:
                begin = column.dictionary_page_offset or column.data_page_offset
                largest = max(largest, largest_page(stream, begin, column.total_compressed_size))
    return largest


def _document(reading: Reading, row: int, cells: Mapping[str, pa.Scalar]) -> Document | Fault:
    source = reading.source

    def named(field: str | None) -> str | None:
        cell = None if field is None else cells.get(field)
        return None if cell is None or not cell.is_valid else str(cell.as_py())

    try:
        value, identifier, address = (
            cells[source.text_field].as_py(),
            named(source.id_field),
            named(source.url_field),
        )
    except UnicodeDecodeError as error:
        return reading.fault(f"row {row}", "undecodable", f"expected UTF-8 text ({error.reason})")
    return reading.document(f"row {row}", "" if value is None else value, identifier, address)


def _source_of(part: Part) -> Path | BinaryIO:
    path = part.file.path
    return path if isinstance(path, Path) else path.open()


def _begins_like_parquet(part: Part) -> bool:
    with part.file.path.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["unknown"])[0][:200]
