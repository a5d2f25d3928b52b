"""A file of framed rows that can be cut off anywhere and still be read up to the cut.

A frame is: length of the payload (uint32, little-endian), CRC-32 of the payload (uint32,
little-endian), payload (compact JSON in UTF-8; NaN and Infinity spelled as Python's json does).
The file begins with the eight bytes `MAGIC`.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAGIC = b"stokrec1"
_HEADER = struct.Struct("<II")
_LARGEST_PAYLOAD = 64 * 2**20


@dataclass(frozen=True)
class Entry:
    """One recorded row: its kind, its place among all rows of its rank, and the row."""

    kind: str
    sequence: int
    row: dict[str, Any]


@dataclass(frozen=True)
class FramedRows:
    """What a framed file held."""

    entries: list[Entry]
    valid_bytes: int
    """Length of the file up to the end of its last whole frame; 0 when not even the magic is whole."""
    dropped_bytes: int
    """Bytes after it: a frame that was being written when the writer was killed."""


def plain_value(value: Any) -> Any:
    """Turn a NumPy or torch scalar, a tuple or a path into what JSON knows; for `json.dumps(default=…)`."""
    if (hasattr(value, "item") and getattr(value, "size", None) in (1, None)) or hasattr(value, "numel"):
        return value.item()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def encode_frame(entry: Entry) -> bytes:
    """One frame. Floats are spelled so that reading gives the same bits, NaN and Infinity included."""
    payload = json.dumps(
        {"kind": entry.kind, "sequence": entry.sequence, "row": entry.row},
        ensure_ascii=False,
        separators=(",", ":"),
        default=plain_value,
    ).encode(errors="backslashreplace")
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def read_frames(path: Path) -> FramedRows:
    """Read every whole frame of `path`; a missing file holds none. A torn or damaged frame ends the reading."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return FramedRows([], 0, 0)
    if not content.startswith(MAGIC):
        return FramedRows([], 0, len(content))
    entries, end = [], len(MAGIC)
    for entry, stop in whole_frames(content, len(MAGIC)):
        entries.append(entry)
        end = stop
    return FramedRows(entries, end, len(content) - end)


def whole_frames(content: bytes, position: int) -> Iterator[tuple[Entry, int]]:
    """Each whole frame from `position` on with the offset of its end, until the first that is not whole."""
    for payload, stop in whole_payloads(content, position):
        try:
            entry = entry_of(payload)
        except (ValueError, KeyError, TypeError):
            return
        yield entry, stop


def entry_of(payload: bytes) -> Entry:
    """The row that a frame's payload spells.

    Half of a surrogate pair (of a file's name that is no text, of a character that was cut in two) becomes
    `\\ud800` in letters: no table, page or terminal takes the half itself. Raises `ValueError`, `KeyError` or
    `TypeError` for what no writer wrote.
    """
    fields = json.loads(payload)
    kind, sequence, row = fields["kind"], fields["sequence"], fields["row"]
    if not isinstance(row, dict) or not isinstance(kind, str) or not isinstance(sequence, int):
        raise TypeError("a row has a kind, a number and fields")
    return Entry(kind, sequence, _whole_text(row) if b"\\ud" in payload else row)


def _whole_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_whole_text(name): _whole_text(part) for name, part in value.items()}
    return [_whole_text(part) for part in value] if isinstance(value, list) else value


def whole_payloads(content: bytes, position: int) -> Iterator[tuple[bytes, int]]:
    """As `whole_frames`, for those who spell out few of the rows: the bytes of each, which fit their checksum."""
    while position + _HEADER.size <= len(content):
        length, checksum = _HEADER.unpack_from(content, position)
        start, stop = position + _HEADER.size, position + _HEADER.size + length
        # A frame of length 0 is what a file system that lost power leaves: zeros. Its checksum would fit.
        if not 0 < length <= _LARGEST_PAYLOAD or stop > len(content):
            return
        payload = content[start:stop]
        if zlib.crc32(payload) != checksum:
            return
        yield payload, stop
        position = stop
