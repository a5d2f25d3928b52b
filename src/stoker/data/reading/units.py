"""Pieces of reading work of a sensible size, cut the same way whatever the number of workers.

A unit is a few small files, one file, or a part of a large file of lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stoker.data.reading.decoding import Undecodable, detect_encoding
from stoker.data.reading.files import InputFile
from stoker.data.reading.open import COMPRESSED, Location
from stoker.data.reading.remote import RemoteFile
from stoker.recipe import Source

UNIT_BYTES = 4 << 20
"""About this much input goes into one unit."""
_UNIT_FILES = 500
_SCAN = 1 << 20
SAMPLE_BYTES = 1 << 20
"""From this much of a file's head its encoding is told."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file, or a run of whole lines (bytes `start` to `stop`) or row groups of one."""

    file: InputFile
    start: int = 0
    stop: int | None = None
    first_line: int = 1
    """Or first row."""

    @property
    def is_whole_file(self) -> bool:
        """Whether nothing of the file is in another part."""
        return self.start == 0 and self.stop is None


@dataclass(frozen=True, slots=True)
class Unit:
    """Work for one worker at one time."""

    number: int
    source: Source
    parts: tuple[Part, ...]
    size: int
    """Bytes on disk, for progress."""


def plan_units(sources: list[tuple[Source, list[tuple[InputFile, int]]]]) -> list[Unit]:
    """All units in the order of sources, files and lines. Each file comes with its size in bytes."""
    units: list[Unit] = []
    for source, files in sources:
        gathered: list[Part] = []
        size = 0
        for part, part_size in _parts(source, files):
            gathered.append(part)
            size += part_size
            if size >= UNIT_BYTES or len(gathered) >= _UNIT_FILES:
                units.append(Unit(len(units), source, tuple(gathered), size))
                gathered, size = [], 0
        if gathered:
            units.append(Unit(len(units), source, tuple(gathered), size))
    return units


def _parts(source: Source, files: list[tuple[InputFile, int]]) -> Iterator[tuple[Part, int]]:
    for file, size in files:
        if size > 2 * UNIT_BYTES and _may_be_cut(source, file):
            for part in _cut(file, size):
                yield part, (part.stop or size) - part.start
        elif size > 2 * UNIT_BYTES and file.format == "parquet":
            yield from _row_groups(file, size)
        else:
            yield Part(file), size


def _may_be_cut(source: Source, file: InputFile) -> bool:
    lines = file.format == "jsonl" or (file.format == "text" and source.documents == "line")
    if not lines or file.path.suffix in COMPRESSED or isinstance(file.path, RemoteFile):
        return False  # to count the lines of a remote file is to fetch it
    try:
        encoding = source.encoding or sampled_encoding(file.path)
    except (OSError, Undecodable):
        return False
    return not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32"))


def sampled_encoding(path: Location) -> str:
    """The encoding of an uncompressed file of lines, from its head. Raises `Undecodable` for binaries."""
    with path.open("rb") as stream:
        return detect_encoding(stream.read(SAMPLE_BYTES), whole=False)


def _cut(file: InputFile, size: int) -> Iterator[Part]:
    """Parts of about `UNIT_BYTES`, cut after line ends; counting lines is a scan at memory speed."""
    part = Part(file)
    line, offset = 1, 0
    with file.path.open("rb") as stream:
        while chunk := stream.read(_SCAN):
            end = chunk.rfind(b"\n")
            if end >= 0 and offset + end + 1 - part.start >= UNIT_BYTES and offset + end + 1 < size:
                line_here = line + chunk.count(b"\n", 0, end + 1)
                yield replace(part, stop=offset + end + 1)
                part = Part(file, offset + end + 1, None, line_here)
            line += chunk.count(b"\n")
            offset += len(chunk)
    yield replace(part, stop=size)


def _row_groups(file: InputFile, size: int) -> Iterator[tuple[Part, int]]:
    """Parts of a Parquet file of about `UNIT_BYTES`, with their share of its bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # by no recipe that is only checked

    try:
        with file.path.open("rb") as stream:
            metadata = pq.read_metadata(stream)
    except (pa.ArrowException, OSError):
        yield Part(file), size  # the reader says what is wrong with it
        return
    sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    begin, left = 0, size
    for group in range(len(sizes)):
        share = sum(sizes[begin : group + 1])
        if group + 1 < len(sizes) and share >= UNIT_BYTES:
            part_size = min(left, size * share // max(sum(sizes), 1))
            yield Part(file, begin, group + 1, 1 + sum(rows[:begin])), part_size
            begin, left = group + 1, left - part_size
    yield Part(file, begin, None, 1 + sum(rows[:begin])), left
