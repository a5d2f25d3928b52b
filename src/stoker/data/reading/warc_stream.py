"""The bytes of a WARC file with the places of its records; what is damaged is passed over up to the next record.

Crawls are compressed record by record: each is a gzip member of its own, so that one bad byte costs one record.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, Protocol

from stoker.data.reading.open import Damaged

_CHUNK = 1 << 17
_MAGIC = b"\x1f\x8b\x08"
_FIRST = b"WARC/"


class Chunks(Protocol):
    """Where decompressed bytes come from."""

    def read(self) -> bytes:
        """Some bytes, none at the end. Raises `Damaged`."""

    def place(self, consumed: int) -> int:
        """The byte of the file where a record is of which nothing but its beginning was read, behind `consumed`."""

    def resume(self) -> bool:
        """Go on behind a damage, at the next record; False where there is none."""


class Stream:
    """Lines and blocks out of chunks."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._waiting = b""
        self._at = 0
        self._consumed = 0

    def line(self, most: int) -> bytes:
        """Up to and with the next line end, or `most` bytes; nothing at the end of the file. Raises `Damaged`."""
        while True:
            end = self._waiting.find(b"\n", self._at, self._at + most)
            if end >= 0:
                return self._take(end + 1 - self._at)
            if len(self._waiting) - self._at >= most or not self._more():
                return self._take(most)

    def block(self, size: int) -> bytes:
        """`size` bytes, fewer where the file ends. Raises `Damaged`."""
        parts = [self._take(size)]
        missing = size - len(parts[0])
        while missing and self._more():
            parts.append(self._take(missing))
            missing -= len(parts[-1])
        return b"".join(parts)

    def skip(self, size: int) -> int:
        """Pass over `size` bytes without holding them; how many there were. Raises `Damaged`."""
        missing = size - len(self._take(size))
        while missing and self._more():
            missing -= len(self._take(missing))
        return size - missing

    def place(self, line: bytes) -> int:
        """The byte of the file that the record begins at whose first line was just read; or its gzip member."""
        return self._chunks.place(self._consumed - len(line))

    def resume(self) -> bool:
        """Go on at the first record that can be read behind a damage; False where there is none."""
        self._waiting, self._at = b"", 0
        return self._chunks.resume()

    def _take(self, size: int) -> bytes:
        taken = self._waiting[self._at : self._at + size]
        self._at += len(taken)
        self._consumed += len(taken)
        return taken

    def _more(self) -> bool:
        chunk = self._chunks.read()
        self._waiting, self._at = self._waiting[self._at :] + chunk, 0
        return bool(chunk)


class PlainChunks:
    """The chunks of a file that is not compressed, or not by gzip."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self) -> bytes:
        """Some bytes, none at the end. Raises `Damaged`."""
        return next(self._chunks, b"")

    def place(self, consumed: int) -> int:
        """The byte of the decompressed file."""
        return consumed

    def resume(self) -> bool:
        """False: nothing behind a damage of such a file can be read."""
        return False


class GzipMembers:
    """The members of a gzip file, one after another."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._packed = b""
        self._packed_at = 0
        """Byte of the file that `_packed` begins at."""
        self._start = 0
        """Byte of the file that the member begins at."""
        self._decoder = zlib.decompressobj(wbits=31)
        self._fresh = True

    def read(self) -> bytes:
        """Some bytes of one member, none at the end of the file. Raises `Damaged`."""
        while True:
            if self._decoder.eof:
                self._next_member()
            if not self._packed and not self._fill():
                if self._fresh:
                    return b""
                raise Damaged("truncated", self._packed_at, "the gzip file ends in the middle of a record")
            if self._fresh and not self._packed.lstrip(b"\0"):
                self._advance(len(self._packed))  # padding behind the last member
                self._start = self._packed_at
                continue
            try:
                data = self._decoder.decompress(self._packed, _CHUNK)
            except zlib.error as error:
                raise Damaged("damaged", self._start, f"the gzip data is damaged ({error})") from None
            self._fresh = False
            rest = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            self._advance(len(self._packed) - len(rest))
            if data:
                return data

    def place(self, consumed: int) -> int:
        """The byte of the file that the member begins at."""
        return self._start

    def resume(self) -> bool:
        """Go on at the next gzip member that begins as a record does; False where there is none."""
        at = self._start + 1
        self._stream.seek(at)
        window, window_at = b"", at
        while True:
            found = window.find(_MAGIC, at - window_at)
            if found < 0:
                at = max(at, window_at + len(window) - len(_MAGIC) + 1)
                window, window_at = window[at - window_at :], at
                chunk = self._stream.read(_CHUNK)
                if not chunk:
                    return False
                window += chunk
                continue
            at = window_at + found
            if self._begins_record(at):
                self._begin(at)
                return True
            at += 1
            self._stream.seek(window_at + len(window))

    def _begins_record(self, at: int) -> bool:
        self._stream.seek(at)
        try:
            return zlib.decompressobj(wbits=31).decompress(self._stream.read(1 << 10), len(_FIRST)) == _FIRST
        except zlib.error:
            return False

    def _begin(self, at: int) -> None:
        self._stream.seek(at)
        self._packed, self._packed_at, self._start = b"", at, at
        self._decoder, self._fresh = zlib.decompressobj(wbits=31), True

    def _next_member(self) -> None:
        self._start = self._packed_at
        self._decoder, self._fresh = zlib.decompressobj(wbits=31), True

    def _advance(self, size: int) -> None:
        self._packed, self._packed_at = self._packed[size:], self._packed_at + size

    def _fill(self) -> bool:
        self._packed = self._stream.read(_CHUNK)
        return bool(self._packed)
