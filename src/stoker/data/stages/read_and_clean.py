"""First stage: each unit of input files becomes a table of what was found and a file of the texts kept.

read/000012.text           cleaned texts of the kept documents, UTF-8, one after another
read/000012.signatures     their MinHash signatures, uint32 [documents, permutations]
read/000012.parquet        one row for each document and each fault; there last, so it marks the unit done
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stoker.data.content import content_of
from stoker.data.deduplication import sign
from stoker.data.document import Document, Fault
from stoker.data.ledger.schema import MEASURE, READING, measure_fields
from stoker.data.operators import Operator, judge, operators_of
from stoker.data.reading.read import read_part
from stoker.data.reading.units import Unit
from stoker.durable_files import durable_file
from stoker.errors import BadInput
from stoker.recipe import Cleaning, Deduplication, Source

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.string()),
        ("identifier", pa.string()),
        ("sha256", pa.binary(32)),
        ("characters", pa.int64()),
        ("bytes", pa.int64()),
        ("cjk_characters", pa.int64()),
        ("formula_characters", pa.int64()),
        ("code_characters", pa.int64()),
        ("kind", pa.string()),
        ("language", pa.string()),
        ("verdict", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("content", pa.binary(32)),
        ("text_bytes", pa.int64()),
        ("text_characters", pa.int64()),
    ]
)
"""Rows in the files' order. `sha256`, `bytes` and the characters, by class too, are of the text as read; `content`
(SHA-256), `text_bytes` and `text_characters` of the cleaned text, null unless the verdict is `kept`. The columns of
the measures of the source's operators follow, see `stoker.data.ledger.schema`."""
_FLUSH_ROWS = 10_000
_SIGN_BYTES = 4 << 20


@dataclass(frozen=True)
class ReadUnit:
    """The job of one worker: a unit of input and where its files go."""

    unit: Unit
    cleaning: Cleaning
    deduplication: Deduplication
    stop_on_fault: bool
    folder: Path


def unit_file(folder: Path, number: int, kind: str) -> Path:
    """A file of unit `number`: `text`, `signatures` or `parquet`."""
    return folder / f"{number:06d}.{kind}"


def read_unit(job: ReadUnit) -> int:
    """Read, clean, filter and sign one unit; returns its size in bytes. Raises `BadInput` at a fault if told to."""
    number = job.unit.number
    table = unit_file(job.folder, number, "parquet")
    if table.is_file():
        return job.unit.size
    operators = operators_of(job.unit.source, job.cleaning)
    measures = tuple(name for one in operators for name in one.measures)
    schema = pa.schema([*SCHEMA, *measure_fields(measures)])
    with (
        durable_file(table) as history,  # the first is closed last: when it is there, all are
        durable_file(unit_file(job.folder, number, "text")) as texts,
        durable_file(unit_file(job.folder, number, "signatures")) as signatures,
        pq.ParquetWriter(history, schema, compression="zstd", compression_level=1) as writer,
    ):
        kept = _KeptTexts(texts, signatures, job.deduplication)
        rows = _Rows(writer, measures)
        for row, measured, text in _judged_rows(job, operators):
            rows.add(row, measured)
            if text is not None:
                kept.add(text)
        rows.flush()
        kept.flush()
    return job.unit.size


class _Rows:
    """Writes rows and measures as a table, some thousands at a time."""

    def __init__(self, writer: pq.ParquetWriter, measures: Sequence[str]) -> None:
        self._writer, self._measures = writer, measures
        self._rows: list[dict[str, Any]] = []
        self._measured: list[Mapping[str, float]] = []

    def add(self, row: dict[str, Any], measures: Mapping[str, float]) -> None:
        self._rows.append(row)
        self._measured.append(measures)
        if len(self._rows) >= _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        table = pa.Table.from_pylist(self._rows, SCHEMA)
        for name in self._measures:
            taken = np.fromiter((one.get(name, np.nan) for one in self._measured), np.float32, len(self._measured))
            table = table.append_column(MEASURE + name, pa.array(taken, mask=np.isnan(taken)))
        self._writer.write_table(table)
        self._rows, self._measured = [], []


class _KeptTexts:
    def __init__(self, texts: BinaryIO, signatures: BinaryIO, settings: Deduplication) -> None:
        self._texts, self._signatures, self._settings = texts, signatures, settings
        self._waiting: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._waiting.append(text)
        self._size += len(text)
        if self._size >= _SIGN_BYTES:
            self.flush()

    def flush(self) -> None:
        self._texts.write("".join(self._waiting).encode())
        self._signatures.write(sign(self._waiting, self._settings).astype("<u4").tobytes())
        self._waiting, self._size = [], 0


def _judged_rows(
    job: ReadUnit, operators: Sequence[Operator]
) -> Iterator[tuple[dict[str, Any], Mapping[str, float], str | None]]:
    """Row, measures and, where it is kept, cleaned text of everything that the unit holds."""
    source = job.unit.source
    for part in job.unit.parts:
        for found in read_part(source, part, job.cleaning.maximum_document_bytes):
            if isinstance(found, Document):
                yield _judge(found, operators)
                continue
            if job.stop_on_fault:
                raise BadInput(_stopped(found))
            yield _fault_row(found, source), {}, None


def _judge(
    document: Document, operators: Sequence[Operator]
) -> tuple[dict[str, Any], Mapping[str, float], str | None]:
    raw = document.text.encode()
    judged = judge(document, operators)
    reason, text = judged.reason, judged.document.text
    content = content_of(document.text)
    row: dict[str, Any] = {
        "file": document.file,
        "position": document.position,
        "identifier": document.identifier,
        "sha256": hashlib.sha256(raw).digest(),
        "characters": len(document.text),
        "bytes": len(raw),
        "cjk_characters": content.cjk,
        "formula_characters": content.formula,
        "code_characters": content.code,
        "kind": judged.document.kind,
        "language": judged.document.language,
        "verdict": "kept" if reason is None else "dropped",
        "detail": judged.detail,
        "stage": READING if judged.stage == "read" else judged.stage,
        "reason": reason,
    }
    if reason is not None:
        return row, judged.measures, None
    cleaned = text.encode()
    row["content"] = hashlib.sha256(cleaned).digest()
    row["text_bytes"], row["text_characters"] = len(cleaned), len(text)
    return row, judged.measures, text


def _fault_row(fault: Fault, source: Source) -> dict[str, Any]:
    return {
        "file": fault.file,
        "position": fault.position,
        "identifier": f"{fault.file}@{fault.position}",
        "kind": source.kind,
        "language": source.language,
        "verdict": "fault",
        "stage": READING,
        "reason": fault.reason,
        "detail": fault.detail,
    }


def _stopped(fault: Fault) -> str:
    return (
        f"data.sources[{fault.source}]: {fault.file}, {fault.position}: {fault.reason}: {fault.detail}. "
        "Repair it, or let data.on_error be `skip` to count such places and go on"
    )


def read_histories(folder: Path, units: Sequence[Unit], columns: list[str] | None = None) -> pa.Table:
    """The rows of all units, one under another."""
    tables = [
        pq.read_table(unit_file(folder, unit.number, "parquet"), columns=columns, use_threads=False)
        for unit in units
    ]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table().select(columns or SCHEMA.names)
