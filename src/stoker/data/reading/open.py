"""The bytes of a file, decompressed on the way, with everything before a damage kept."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from stoker.data.reading.remote import RemoteFile

COMPRESSED = (".gz", ".zst")
_CHUNK = 1 << 18
_SMALL_STEP = 64
_ZSTD_CHUNK = 1 << 10
"""Fed to the zstd decoder at once. One KiB unpacks to 32 MiB at the very worst (run-length blocks)."""


class Damaged(Exception):
    """The file cannot be read past a point. `reason` is a fault's reason, `byte` where it was noticed."""

    def __init__(self, reason: str, byte: int, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.byte, self.detail = reason, byte, detail


Location = Path | RemoteFile


def read_chunks(path: Location, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """The file's bytes in pieces, decompressed where the name says so.

    `start` and `stop` cut a part out of a file that is not compressed. Raises `Damaged` after the last
    good byte of a truncated or damaged archive, and `OSError` where the operating system refuses.
    """
    with path.open("rb") as stream:
        if path.suffix == ".gz":
            yield from _gunzip(stream)
        elif path.suffix == ".zst":
            yield from _unzstd(stream)
        else:
            yield from _plain(stream, start, stop)


def read_at_most(path: Location, limit: int) -> bytes | None:
    """The whole file, or None when it holds more than `limit` bytes."""
    parts, size = [], 0
    for chunk in read_chunks(path):
        size += len(chunk)
        if size > limit:
            return None
        parts.append(chunk)
    return b"".join(parts)


def _plain(stream: BinaryIO, start: int, stop: int | None) -> Iterator[bytes]:
    stream.seek(start)
    left = None if stop is None else stop - start
    while left is None or left > 0:
        chunk = stream.read(_CHUNK if left is None else min(_CHUNK, left))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk


def _gunzip(stream: BinaryIO) -> Iterator[bytes]:
    # gzip.GzipFile loses what it had unpacked when it meets a damage; zlib itself does not.
    decoder = zlib.decompressobj(wbits=31)
    fresh, any_member = True, False
    pending = b""
    while True:
        packed = pending or stream.read(_CHUNK)
        pending = b""
        if not packed:
            break
        if fresh and any_member:
            packed = packed.lstrip(b"\0")  # padding after the last member
            if not packed:
                continue
        before = decoder.copy()
        try:
            data = decoder.decompress(packed, _CHUNK)
        except zlib.error as error:
            # What that call had unpacked is lost with it: again, in small steps, up to the damage.
            yield from _up_to_damage(before, packed)
            raise Damaged("damaged", stream.tell(), f"the gzip data is damaged ({error})") from None
        fresh = False
        if data:
            yield data
        pending = decoder.unconsumed_tail
        if decoder.eof:
            pending = decoder.unused_data
            decoder, fresh, any_member = zlib.decompressobj(wbits=31), True, True
    if not fresh:
        raise Damaged("truncated", stream.tell(), "the gzip file ends in the middle of its data")


def _up_to_damage(decoder: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    for start in range(0, len(packed), _SMALL_STEP):
        try:
            yield decoder.decompress(packed[start : start + _SMALL_STEP])
        except zlib.error:
            return


def _unzstd(stream: BinaryIO) -> Iterator[bytes]:
    context = zstandard.ZstdDecompressor()
    decoder = context.decompressobj()
    fresh = True
    pending = b""
    while packed := pending or stream.read(_ZSTD_CHUNK):
        pending = b""
        try:
            data = decoder.decompress(packed)
        except zstandard.ZstdError as error:
            raise Damaged("damaged", stream.tell(), f"the zstd data is damaged ({error})") from None
        fresh = False
        if data:
            yield data
        if decoder.eof:
            pending = decoder.unused_data
            decoder, fresh = context.decompressobj(), True
    if not fresh:
        raise Damaged("truncated", stream.tell(), "the zstd file ends in the middle of a frame")
