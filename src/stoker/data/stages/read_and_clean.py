"""First stage: each unit of input files becomes a table of what was found and a file of the texts kept.

read/000012.text           cleaned texts of the kept documents, UTF-8, one after another
read/000012.signatures     their MinHash signatures, uint32 [documents, permutations]
read/000012.parquet        one row for each document and each fault; there last, so it marks the unit done
read/000012.note           where the worker is in a unit that is not done
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stoker.data.content import content_of
from stoker.data.deduplication import sign
from stoker.data.document import Document, Fault
from stoker.data.executors import WorkerDied
from stoker.data.executors.worker import limit_next_piece
from stoker.data.ledger.schema import MEASURE, READING, measure_fields
from stoker.data.operators import Operator, judge, operators_of
from stoker.data.reading.first_documents import stopped_by
from stoker.data.reading.poisoned import POISONED, failure
from stoker.data.reading.read import read_part
from stoker.data.reading.units import Unit
from stoker.data.stages.spoilt import spoilt
from stoker.data.stages.warm_up import warm_up
from stoker.data.stages.watch import Limits, Place, Step, Watch, noted_place
from stoker.durable_files import durable_file
from stoker.errors import BadInput, StokerError
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
_STEPS: dict[Step, str] = {
    "reading": "read",
    "extracting": "taken out of its page",
    "judging": "cleaned and filtered",
    "signing": "signed for the search for duplicates",
}
_LACKED_MEMORY = "stoker.lacked_memory"
"""What the table of a unit says beside its rows."""
_WITHOUT_A_CULPRIT = 4
"""After so many deaths of workers over a unit of which no one document is the cause, the run ends."""


@dataclass(frozen=True)
class ReadUnit:
    """The job of one worker: a unit of input and where its files go."""

    unit: Unit
    cleaning: Cleaning
    deduplication: Deduplication
    stop_on_fault: bool
    folder: Path
    document_seconds: float | None = None
    """CPU seconds for each document, see `Limits`."""
    set_aside: tuple[tuple[Place, str], ...] = ()
    """What is not to be worked on, and why: workers died over it."""
    suspect: Place | None = None
    """Where a worker died. One that dies there again was no accident."""
    lacked_memory: int | None = None
    """Bytes that the workers might take of which one of `set_aside` needed more."""
    more_memory: int | None = None
    """Bytes that a worker may take now: a unit of which something is set aside that had fewer is read anew. None
    where it must stay as it is."""

    @property
    def is_careful(self) -> bool:
        """Whether to go document by document, so that the place of a death is exact. It changes no byte."""
        return self.suspect is not None or bool(self.set_aside)


@dataclass(frozen=True)
class UnitRead:
    """What a unit held."""

    size: int
    """In bytes, on disk."""
    documents: int
    """Whatever became of them; without faults."""
    faults: Mapping[str, int]
    """How many for each reason."""
    places: tuple[str, ...]
    """The first faults for people: file, position, reason."""
    lacked_memory: int | None = None
    """Bytes of memory that were too few for some of the faults, see `lacked_memory`."""


def unit_file(folder: Path, number: int, kind: str) -> Path:
    """A file of unit `number`: `text`, `signatures`, `parquet` or `note`."""
    return folder / f"{number:06d}.{kind}"


def read_unit(job: ReadUnit) -> UnitRead:
    """Read, clean, filter and sign one unit; what it held. Raises `BadInput` at a fault if told to."""
    number = job.unit.number
    table = unit_file(job.folder, number, "parquet")
    if table.is_file() and not is_tried_again(lacked_memory(table), job.more_memory):
        return _what_was_read(job)
    note = unit_file(job.folder, number, "note")
    watch = Watch(note, Limits(job.document_seconds, limit_next_piece), dict(job.set_aside))
    operators = operators_of(job.unit.source, job.cleaning)
    warm_up(job.unit.source, operators, job.deduplication)
    measures = tuple(name for one in operators for name in one.measures)
    schema = pa.schema([*SCHEMA, *measure_fields(measures)])
    with (
        durable_file(table) as history,  # the first is closed last: when it is there, all are
        durable_file(unit_file(job.folder, number, "text")) as texts,
        durable_file(unit_file(job.folder, number, "signatures")) as signatures,
        pq.ParquetWriter(history, schema, compression="zstd", compression_level=1) as writer,
    ):
        kept = _KeptTexts(texts, signatures, job.deduplication, watch, job.is_careful)
        rows = _Rows(writer, measures)
        for row, measured, text in _signable_rows(job, operators, watch):
            rows.add(row, measured)
            if text is not None:
                kept.add(text)
        rows.flush()
        if job.lacked_memory is not None:
            writer.add_key_value_metadata({_LACKED_MEMORY: str(job.lacked_memory)})
        kept.flush()
        watch.close()
    note.unlink()
    return _what_was_read(job)


def after_death(job: ReadUnit, death: WorkerDied, deaths: int) -> ReadUnit:
    """What to do about a unit over which a worker died: again, and without what workers died over twice.

    Raises `StokerError` when workers die over one place after another.
    """
    place = noted_place(unit_file(job.folder, job.unit.number, "note"))
    by_accident = deaths - 2 * len(job.set_aside)
    if place is None or by_accident >= _WITHOUT_A_CULPRIT or place in dict(job.set_aside):
        files = ", ".join(part.file.name for part in job.unit.parts[:3])
        raise StokerError(
            f"a worker process of the preparation {death.how}, {deaths} times while it read {files}, and no one "
            "document is the cause; the machine may be short of memory. Run the same command again (what was "
            "finished is kept), or set data.workers lower"
        ) from None
    if place == job.suspect:
        why = f"while it was {_STEPS[place.step]}, a worker process {death.how}, and so did another"
        lacked = min(filter(None, (job.lacked_memory, death.lacked_memory)), default=None)
        return replace(job, set_aside=(*job.set_aside, (place, why)), suspect=None, lacked_memory=lacked)
    return replace(job, suspect=place)


def _what_was_read(job: ReadUnit) -> UnitRead:
    table = read_histories(job.folder, [job.unit], ["file", "position", "verdict", "reason"])
    faults = table.filter(pc.equal(table["verdict"], "fault"))
    places = tuple(f"{row['file']}, {row['position']}: {row['reason']}" for row in faults.slice(0, 3).to_pylist())
    lacked = lacked_memory(unit_file(job.folder, job.unit.number, "parquet"))
    reasons = Counter(faults["reason"].to_pylist())
    return UnitRead(job.unit.size, table.num_rows - faults.num_rows, reasons, places, lacked)


def lacked_memory(table: Path) -> int | None:
    """Bytes of memory that were too few for documents which are set aside in the table of a unit.

    None where none is set aside for that, or the table cannot be read.
    """
    try:
        known = pq.read_metadata(table).metadata or {}
        return int(known[_LACKED_MEMORY.encode()]) if _LACKED_MEMORY.encode() in known else None
    except (pa.ArrowException, OSError, ValueError):
        return None


def is_tried_again(lacked: int | None, memory: int | None) -> bool:
    """Whether workers may take `memory` now, which is more than was too little."""
    return lacked is not None and memory is not None and memory > lacked


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
    def __init__(
        self, texts: BinaryIO, signatures: BinaryIO, settings: Deduplication, watch: Watch, careful: bool
    ) -> None:
        self._texts, self._signatures, self._settings = texts, signatures, settings
        self._watch, self._careful = watch, careful
        self._waiting: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._waiting.append(text)
        self._size += len(text)
        if self._careful or self._size >= _SIGN_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._careful:
            self._watch.at(Place(0, "signing", ""), self._size)
        self._texts.write("".join(self._waiting).encode())
        self._signatures.write(sign(self._waiting, self._settings).astype("<u4").tobytes())
        self._waiting, self._size = [], 0


_Judged = tuple[dict[str, Any], Mapping[str, float], str | None]
"""Row, measures and, where it is kept, cleaned text of something that a unit holds."""


def _signable_rows(job: ReadUnit, operators: Sequence[Operator], watch: Watch) -> Iterator[_Judged]:
    """What the unit holds; where the worker goes carefully, each document is noted before it is signed."""
    for index, document, judged in _judged_rows(job, operators, watch):
        row, measured, text = judged
        if job.is_careful and document is not None and text is not None:
            why = watch.at(Place(index, "signing", document.position), len(text))
            if why is not None:
                yield _poisoned_row(document, why), measured, None
                continue
        yield row, measured, text


def _judged_rows(
    job: ReadUnit, operators: Sequence[Operator], watch: Watch
) -> Iterator[tuple[int, Document | None, _Judged]]:
    """Part, document (None for a fault) and what became of it, of everything that the unit holds."""
    source = job.unit.source
    for index in range(len(job.unit.parts)):
        for found in _found(job, index, watch):
            if isinstance(found, Document):
                yield index, found, _judged_apart(found, operators, index, watch)
                continue
            if job.stop_on_fault and found.reason != POISONED:
                raise BadInput(stopped_by(found))
            yield index, None, (_fault_row(found, source), {}, None)


def _found(job: ReadUnit, index: int, watch: Watch) -> Iterator[Document | Fault]:
    """What a part of the unit holds, up to where reading on ends the worker or fails."""
    part, source = job.unit.parts[index], job.unit.source
    limit = job.cleaning.maximum_document_bytes
    reader = read_part(
        source, part, limit, lambda position, size: watch.at(Place(index, "extracting", position), size)
    )
    position = ""
    while True:
        why = watch.at(Place(index, "reading", position), limit)
        if why is None:
            try:
                found = next(reader, None)
            except (StokerError, MemoryError):
                raise
            except Exception as error:
                why = failure(error)
            else:
                if found is None:
                    return
                yield found
                position = found.position
                continue
        begin = "file" if part.is_whole_file else f"from line {part.first_line}"
        where = f"behind {position}" if position else begin
        yield Fault(source.name, part.file.name, where, POISONED, f"cannot be read: {why}")
        return


def _judged_apart(document: Document, operators: Sequence[Operator], index: int, watch: Watch) -> _Judged:
    """What the operators make of a document, which is set aside where workers died over it or an operator fails."""
    why = watch.at(Place(index, "judging", document.position), len(document.text))
    if why is None:
        try:
            return _judge(document, operators)
        except (StokerError, MemoryError):
            raise
        except Exception as error:
            why = failure(error)
    return _poisoned_row(document, why), {}, None


def _judge(document: Document, operators: Sequence[Operator]) -> _Judged:
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


def _poisoned_row(document: Document, why: str) -> dict[str, Any]:
    raw = document.text.encode()
    return {
        "file": document.file,
        "position": document.position,
        "identifier": document.identifier,
        "sha256": hashlib.sha256(raw).digest(),
        "characters": len(document.text),
        "bytes": len(raw),
        "kind": document.kind,
        "language": document.language,
        "verdict": "fault",
        "stage": READING,
        "reason": POISONED,
        "detail": why,
    }


def read_histories(folder: Path, units: Sequence[Unit], columns: list[str] | None = None) -> pa.Table:
    """The rows of all units, one under another. Raises `StokerError` where a table is not as it was written."""
    tables = [_history(unit_file(folder, unit.number, "parquet"), folder, columns) for unit in units]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table().select(columns or SCHEMA.names)


def _history(file: Path, folder: Path, columns: list[str] | None) -> pa.Table:
    try:
        return pq.read_table(file, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise spoilt(file, folder.parent, str(error).split("\n")[0]) from None
