"""Lines of a byte stream in bounded memory, each with its number and its place."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its line end."""

    number: int
    """From 1."""
    byte: int
    """Offset of its first byte in the file (in the unpacked bytes of an archive)."""
    content: bytes | None
    """None when the line is longer than the limit."""
    size: int
    """In bytes, also when the content was passed over."""


def split_lines(chunks: Iterable[bytes], limit: int, first_number: int = 1, first_byte: int = 0) -> Iterator[Line]:
    """Lines ended by LF or CR LF; one longer than `limit` bytes is passed over without being held."""
    number, byte = first_number, first_byte
    pending: list[bytes] = []
    held = 0
    passed_over = 0
    for chunk in chunks:
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            pending.append(chunk[begin:end])
            size = held + passed_over + end - begin
            kept = None if passed_over or size > limit else _without_cr(b"".join(pending))
            yield Line(number, byte, kept, size)
            number, byte = number + 1, byte + size + 1
            pending, held, passed_over = [], 0, 0
            begin = end + 1
        rest = chunk[begin:]
        if passed_over or held + len(rest) > limit:
            passed_over += held + len(rest)
            pending, held = [], 0
        elif rest:
            pending.append(rest)
            held += len(rest)
    if held or passed_over:
        kept = None if passed_over else _without_cr(b"".join(pending))
        yield Line(number, byte, kept, held + passed_over)


def _without_cr(content: bytes) -> bytes:
    return content[:-1] if content.endswith(b"\r") else content


def to_utf8(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Recode encodings whose line ends are not the byte 10 (UTF-16, UTF-32), so that lines can be found.

    Raises `UnicodeDecodeError` at a damage, after everything before it was yielded.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors="strict")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", errors="replace")
    yield decoder.decode(b"", final=True).encode("utf-8", errors="replace")
