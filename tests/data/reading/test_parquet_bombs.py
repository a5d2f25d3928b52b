"""Parquet files that are small and unpack to much are read in bounded memory, or refused by their headers."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.data.document import Document, Fault
from stoker.data.reading import parquet
from stoker.data.reading.files import list_files
from stoker.data.reading.parquet_pages import UnreadableHeader, largest_page
from stoker.data.reading.read import read_part
from stoker.data.reading.units import Part
from stoker.recipe import Source


def read(path: Path, most: int = 1 << 20) -> list[Document | Fault]:
    source = Source(name="made", paths=(str(path),))
    (file,) = list_files(source, path.parent)
    return list(read_part(source, Part(file), most))


def write(path: Path, texts: Any, **options: Any) -> None:
    pq.write_table(pa.table({"text": texts}), path, compression="zstd", **options)


def column_bytes(path: Path) -> tuple[int, int]:
    """Where the one column of the one row group begins, and its size."""
    column = pq.read_metadata(path).row_group(0).column(0)
    return column.dictionary_page_offset or column.data_page_offset, column.total_compressed_size


def test_a_huge_cell_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    write(path, pa.array(["before", "a" * (200 << 20), "behind"]), use_dictionary=False)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it was unpacked"))
    (fault,) = read(path)
    assert isinstance(fault, Fault)
    assert (fault.position, fault.reason) == ("rows 1 to 3", "too_large")
    assert "a page that unpacks to 2097" in fault.detail


def test_other_row_groups_of_its_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for text in ("before", "a" * (200 << 20), "behind"):
            writer.write_table(pa.table({"text": [text]}, schema))
    found = read(path)
    assert [one.text if isinstance(one, Document) else one.reason for one in found] == [
        "before",
        "too_large",
        "behind",
    ]


def test_a_batch_of_a_large_dictionary_entry_has_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six hundred rows that are one megabyte each, in a file of a few kilobytes."""
    path = tmp_path / "a.parquet"
    write(path, pa.DictionaryArray.from_arrays(pa.array([0] * 600, pa.int32()), pa.array(["b" * (1 << 20)])))
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 4 << 20)
    sizes: list[int] = []
    iterate = pq.ParquetFile.iter_batches

    def noted(*arguments: Any, **options: Any) -> Any:
        for batch in iterate(*arguments, **options):
            sizes.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert len(read(path, 2 << 20)) == 600
    assert max(sizes) <= 4


@given(
    texts=st.lists(st.one_of(st.none(), st.text(max_size=300)), min_size=1, max_size=60),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    page=st.sampled_from([64, 1000, 1 << 20]),
    statistics=st.booleans(),
    checksum=st.booleans(),
)
def test_no_value_of_a_column_is_larger_than_its_largest_page(
    texts: list[str | None], dictionary: bool, version: str, page: int, statistics: bool, checksum: bool
) -> None:
    written = io.BytesIO()
    pq.write_table(
        pa.table({"text": pa.array(texts, pa.string())}),
        written,
        use_dictionary=dictionary,
        data_page_version=version,
        data_page_size=page,
        write_statistics=statistics,
        write_page_checksum=checksum,
    )
    metadata = pq.read_metadata(written).row_group(0).column(0)
    begin = metadata.dictionary_page_offset or metadata.data_page_offset
    found = largest_page(written, begin, metadata.total_compressed_size)
    assert max(len(text.encode()) for text in [*texts, ""] if text is not None) <= found
    assert found <= metadata.total_uncompressed_size


@given(st.binary(max_size=200))
@example(b"\x18" + b"\xff" * 8 + b"\x7f" + bytes(100))  # text of 2^63 - 1 bytes
@example(b"\x18" + b"\xff" * 9 + b"\x3f" + bytes(100))
def test_what_is_no_page_header_is_told_and_never_followed(content: bytes) -> None:
    with contextlib.suppress(UnreadableHeader):
        assert largest_page(io.BytesIO(content), 0, len(content)) >= 0


def test_a_damaged_header_costs_its_row_group_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, pa.array(["some text"] * 10), use_dictionary=False)
    begin, _ = column_bytes(path)
    content = bytearray(path.read_bytes())
    content[begin : begin + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    (fault,) = read(path)
    assert isinstance(fault, Fault)
    assert (fault.position, fault.reason) == ("rows 1 to 10", "damaged")
