"""Bad files: what is good in them is kept, what is bad is a named fault, nothing crashes or fills the memory."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.document import Document, Fault
from tests.data.reading.reading_files import faults, read_all, texts

RANDOM = random.Random(5)
LINES = [f'{{"text": "line {number} {RANDOM.randbytes(8).hex()}"}}' for number in range(5000)]
RAW = ("\n".join(LINES) + "\n").encode()


def pack(name: str) -> bytes:
    if name == "gz":
        return gzip.compress(RAW)
    # Frames of small blocks, as a writer that flushes makes them.
    packer = zstandard.ZstdCompressor().compressobj()
    packed = b""
    for start in range(0, len(RAW), 4096):
        packed += packer.compress(RAW[start : start + 4096]) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return packed + packer.flush()


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_lines_before_the_end_of_a_truncated_archive_are_kept(tmp_path: Path, ending: str) -> None:
    packed = pack(ending)
    (tmp_path / f"a.jsonl.{ending}").write_bytes(packed[: len(packed) // 2])
    found = read_all(tmp_path)
    kept = texts(found)
    assert len(kept) > 2000
    assert kept == [json.loads(line)["text"] for line in LINES[: len(kept)]]
    assert isinstance(found[-1], Fault)
    assert found[-1].reason == "truncated"
    assert found[-1].file == f"a.jsonl.{ending}"
    assert found[-1].position == f"byte {len(packed) // 2}"


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_lines_before_a_damage_in_an_archive_are_kept(tmp_path: Path, ending: str) -> None:
    packed = bytearray(pack(ending))
    middle = len(packed) // 2
    packed[middle : middle + 64] = b"\xff" * 64
    (tmp_path / f"a.jsonl.{ending}").write_bytes(packed)
    found = read_all(tmp_path)
    whole = {json.loads(line)["text"] for line in LINES}
    assert len(whole.intersection(texts(found))) > 1500
    assert [fault.reason for fault in found if isinstance(fault, Fault)][-1] in ("damaged", "truncated")


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_archives_of_several_members_are_read_to_the_end(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.jsonl.{ending}").write_bytes(pack(ending) + pack(ending))
    found = read_all(tmp_path)
    assert len(texts(found)) == 2 * len(LINES)
    assert faults(found) == []


@pytest.mark.parametrize("content", [b"\x1f", b"\x28\xb5", b"plain text\n"])
@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_what_only_claims_to_be_an_archive_is_a_fault(tmp_path: Path, ending: str, content: bytes) -> None:
    (tmp_path / f"a.jsonl.{ending}").write_bytes(content)
    found = read_all(tmp_path)
    assert texts(found) == []
    assert len(found) == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.txt", "a.txt.gz"])
@pytest.mark.parametrize("documents", ["file", "line", "paragraph"])
def test_an_empty_file_is_one_empty_document(tmp_path: Path, name: str, documents: str) -> None:
    (tmp_path / name).write_bytes(b"")
    found = read_all(tmp_path, documents=documents)
    assert texts(found) == [""]
    assert faults(found) == []


def test_the_text_before_the_damage_of_a_compressed_text_file_is_kept(tmp_path: Path) -> None:
    packed = gzip.compress(
        "\n".join(f"第{number}行 {RANDOM.randbytes(8).hex()}" for number in range(3000)).encode()
    )
    (tmp_path / "a.txt.gz").write_bytes(packed[: len(packed) // 2])
    found = read_all(tmp_path)
    assert len(texts(found)) == 1
    assert texts(found)[0].startswith("第0行")
    assert texts(found)[0].endswith("\n")
    assert [reason for _, reason in faults(found)] == ["truncated"]


def test_a_damaged_row_group_of_a_parquet_file_costs_its_own_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"row {number} " + RANDOM.randbytes(40).hex() for number in range(3000)]})
    pq.write_table(table, path, row_group_size=1000, compression="zstd", use_dictionary=False)
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    raw = bytearray(path.read_bytes())
    raw[start : start + 4000] = b"\xff" * 4000
    path.write_bytes(raw)
    found = read_all(tmp_path)
    assert texts(found) == table["text"].to_pylist()[:1000] + table["text"].to_pylist()[2000:]
    assert faults(found) == [("rows 1001 to 2000", "damaged")]


def test_a_truncated_parquet_file_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"]}), path)
    path.write_bytes(path.read_bytes()[:-20])
    (tmp_path / "b.parquet").write_bytes(b"")
    (tmp_path / "c.parquet").write_bytes(b"not parquet at all, but long enough to be one")
    assert [reason for _, reason in faults(read_all(tmp_path))] == ["truncated", "damaged", "damaged"]


def test_parquet_columns_of_the_wrong_name_or_type_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"text": ["x", None, ""], "id": ["i1", "i2", "i3"]}), tmp_path / "c.parquet")
    pq.write_table(pa.table({"text": pa.array(["d", "d"]).dictionary_encode()}), tmp_path / "d.parquet")
    found = read_all(tmp_path, id_field="id")
    assert faults(found) == [("file", "no_text_field"), ("file", "wrong_type")]
    assert texts(found) == ["x", "", "", "d", "d"]
    assert [item.identifier for item in found if isinstance(item, Document)][:4] == [
        "i1",
        "i2",
        "i3",
        "d.parquet:1",
    ]


def test_bad_lines_of_json_are_named_and_the_good_ones_kept(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"text": "after the mark"}',
        b'{"text": null}',
        b'{"other": 1}',
        b'{"text": 5}',
        b'{"text": "nul \x00 inside"}',
        b'{"text": "half a li',
        b"[1, 2]",
        b"",
        b"   ",
        b'{"text": "\\ud800"}',
        b'{"text": "bad \xff byte"}',
        b"[" * 100_000,
        b'{"text": "\\u0000 escaped"}',
        b'{"text": "last, without a line end"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    found = read_all(tmp_path)
    assert texts(found) == ["after the mark", "", "\0 escaped", "last, without a line end"]
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    assert [(position.split(",")[0], reason) for position, reason in faults(found)] == [
        ("line 3", "no_text_field"),
        ("line 4", "wrong_type"),
        ("line 5", "binary"),
        ("line 6", "not_json"),
        ("line 7", "wrong_type"),
        ("line 10", "undecodable"),
        ("line 11", "undecodable"),
        ("line 12", "not_json"),
    ]
    assert faults(found)[0][0] == f"line 3, byte {starts[2]}"
    assert faults(found)[6][0] == f"line 11, byte {starts[10] + 14}"


@pytest.mark.parametrize("text", ["", " ", "\n", None])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_empty_text_anywhere_is_a_document_without_text(tmp_path: Path, text: str | None, place: int) -> None:
    wanted: list[str | None] = ["a", "b"]
    wanted.insert(place, text)
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": value}) for value in wanted))
    assert texts(read_all(tmp_path)) == [value or "" for value in wanted]


def test_empty_one_byte_and_binary_files_are_read_without_a_crash(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "b.txt").write_bytes(b"x")
    (tmp_path / "c.txt").write_bytes(b"\xff")
    (tmp_path / "d.bin").write_bytes(bytes(range(256)) * 4)
    for documents in ("file", "line", "paragraph"):
        found = read_all(tmp_path, documents=documents)
        assert [text for text in texts(found) if text] == ["x"]
        assert [reason for _, reason in faults(found)] == ["undecodable", "binary"]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz", "a.html", "a.py"])
@pytest.mark.parametrize("documents", ["file", "line", "paragraph"])
def test_one_enormous_line_is_a_fault_in_bounded_memory(tmp_path: Path, name: str, documents: str) -> None:
    raw = b"x" * (40 << 20) + b'\n{"text": "behind it"}\n'
    (tmp_path / name).write_bytes(gzip.compress(raw, 1) if name.endswith("gz") else raw)
    tracemalloc.start()
    found = read_all(tmp_path, documents=documents)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert faults(found)[0][1] == "too_large"
    assert peak < 12 << 20
    if "jsonl" in name:
        assert texts(found) == ["behind it"]


def test_a_paragraph_of_many_lines_over_the_limit_is_a_fault_and_reading_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\n" + "long line\n" * 300 + "\n\nlast\n")
    found = read_all(tmp_path, documents="paragraph", limit=1024)
    assert texts(found) == ["one\ntwo", "last"]
    assert faults(found) == [("line 4", "too_large")]


def test_what_may_not_be_read_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")

    def refused(path: Path, start: int = 0, stop: int | None = None) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("stoker.data.reading.text.read_chunks", refused)
    assert faults(read_all(tmp_path, documents="line")) == [("file", "unreadable"), ("file", "unreadable")]


@given(st.binary(max_size=400), st.sampled_from(["txt", "jsonl", "jsonl.gz", "jsonl.zst", "parquet", "html", "py"]))
def test_no_bytes_whatever_stop_a_reader(tmp_path: Path, raw: bytes, ending: str) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    (tmp_path / f"a.{ending}").write_bytes(raw)
    for settings in ({"documents": "line"}, {"documents": "paragraph"}, {}, {"extract": "docstrings"}):
        for found in read_all(tmp_path, limit=1024, **settings):
            if isinstance(found, Document):
                found.text.encode()
