"""How much the pages of a Parquet column hold when they are unpacked, from their headers alone.

A value lies within one page, so the largest page bounds every value. A file of some kilobytes may hold pages of
gigabytes, which pyarrow would unpack before it gives anything to anybody. Of the headers it tells nothing: this
reads them, in Thrift's compact protocol (`PageHeader` of parquet.thrift: fields 2 and 3 are the bytes of the page,
unpacked and packed).
"""

from __future__ import annotations

import io
from typing import BinaryIO

_UNPACKED, _PACKED = 2, 3
_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_BOOLEANS = (1, 2)
_HEADER_BYTES = 1 << 16
"""Statistics in a header are cut by those who write them; one that is longer is not read."""
_DEEPEST = 16


class UnreadableHeader(ValueError):
    """What should be a page header is none."""


def largest_page(stream: BinaryIO, start: int, size: int) -> int:
    """Unpacked bytes of the largest of the pages that lie in `size` bytes from `start`.

    Raises `UnreadableHeader` and `OSError`.
    """
    largest, place = 0, start
    while place < start + size:
        stream.seek(place)
        header = io.BytesIO(stream.read(min(_HEADER_BYTES, start + size - place)))
        sizes = _struct(header, 0)
        unpacked, packed = sizes.get(_UNPACKED, -1), sizes.get(_PACKED, -1)
        if unpacked < 0 or packed < 0:
            raise UnreadableHeader(f"no page header at byte {place}")
        largest = max(largest, unpacked)
        place += header.tell() + packed
    return largest


def _struct(stream: io.BytesIO, depth: int) -> dict[int, int]:
    """The integers among a struct's fields, by number; everything else is passed over."""
    if depth > _DEEPEST:
        raise UnreadableHeader("a page header of too many levels")
    integers: dict[int, int] = {}
    field = 0
    while kind := (head := _byte(stream)) & 0x0F:
        field = field + (head >> 4) if head >> 4 else _integer(stream)
        if kind in _INTEGERS:
            integers[field] = _integer(stream)
        elif kind not in _BOOLEANS:  # the kind is the value
            _pass_over(stream, kind, depth)
    return integers


def _pass_over(stream: io.BytesIO, kind: int, depth: int) -> None:
    if kind == _STRUCT:
        _struct(stream, depth + 1)
    elif kind == _BINARY:
        size = _varint(stream)
        if size > _HEADER_BYTES:
            raise UnreadableHeader(f"{size} bytes of text in a page header")
        stream.seek(size, io.SEEK_CUR)
    elif kind in _INTEGERS:
        _varint(stream)
    elif kind == _DOUBLE:
        stream.seek(8, io.SEEK_CUR)
    elif kind in (_BYTE, *_BOOLEANS):
        stream.seek(1, io.SEEK_CUR)
    elif kind in (_LIST, _SET):
        head = _byte(stream)
        count = head >> 4 if head >> 4 < 15 else _varint(stream)
        for _ in range(min(count, _HEADER_BYTES)):
            _pass_over(stream, head & 0x0F, depth + 1)
    else:  # no page header has a map
        raise UnreadableHeader(f"a field of kind {kind} in a page header")


def _byte(stream: io.BytesIO) -> int:
    found = stream.read(1)
    if not found:
        raise UnreadableHeader("a page header that does not end")
    return found[0]


def _varint(stream: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = _byte(stream)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 63:
            raise UnreadableHeader("a number of too many bytes in a page header")


def _integer(stream: io.BytesIO) -> int:
    """Zigzag-coded."""
    value = _varint(stream)
    return (value >> 1) ^ -(value & 1)
