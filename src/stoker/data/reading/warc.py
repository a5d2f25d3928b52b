"""Web archives (WARC, ISO 28500) and their extracted text (WET): one document for each page.

Responses and resources that are HTML go through the source's extraction, plain text and conversions are taken as
they are. Redirects, errors, other media types and revisits are passed over with a reason.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.data.document import Document, Fault
from stoker.data.extraction import extract_text
from stoker.data.reading import http
from stoker.data.reading.decoding import Undecodable, decode
from stoker.data.reading.html import decode_page, known_encoding
from stoker.data.reading.open import Damaged, read_chunks
from stoker.data.reading.poisoned import POISONED, failure
from stoker.data.reading.read import LONGEST_ADDRESS, Reading
from stoker.data.reading.units import Part
from stoker.data.reading.warc_stream import GzipMembers, PlainChunks, Stream
from stoker.errors import StokerError

_MARKUP = 4
"""A page may be this many times larger than its text."""
_LONGEST_LINE = 1 << 16
_MOST_LINES = 1000
_WITH_DOCUMENTS = ("response", "resource", "conversion", "revisit")
_LOOKS_LIKE_HTML = re.compile(rb"<(?:!doctype html|html|head|body|title|p|div)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Record:
    number: int
    place: int
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        return self.headers.get("warc-type", "").lower()

    @property
    def position(self) -> str:
        url = self.headers.get("warc-target-uri", "").strip("<>")[:LONGEST_ADDRESS]
        return f"record {self.number}, byte {self.place}" + (f", {url}" if url.isprintable() and url else "")

    @property
    def identifier(self) -> str | None:
        found = self.headers.get("warc-record-id", "").strip("<> ")
        return found if found and found.isprintable() else None


def read(reading: Reading, part: Part) -> Iterator[Document | Fault]:
    """The pages of a web archive, in its order, never holding more than one of them."""
    path = part.file.path
    if path.suffix != ".gz":
        yield from _Archive(reading, Stream(PlainChunks(read_chunks(path)))).documents()
        return
    with path.open("rb") as file:
        yield from _Archive(reading, Stream(GzipMembers(file))).documents()


class _Archive:
    def __init__(self, reading: Reading, stream: Stream) -> None:
        self._reading, self._stream = reading, stream
        self._number = 0
        self._most = _MARKUP * reading.maximum_bytes

    def documents(self) -> Iterator[Document | Fault]:
        """Documents and faults; behind a damage it goes on at the next record that can be found."""
        while True:
            try:
                yield from self._records()
                return
            except Damaged as error:
                yield self._fault(error.byte, error.reason, error.detail)
                if error.reason == "truncated" or not self._stream.resume():
                    return

    def _records(self) -> Iterator[Document | Fault]:
        while (line := self._stream.line(_LONGEST_LINE)) != b"":
            if not line.strip():
                continue
            self._number += 1
            place = self._stream.place(line)
            if not line.startswith(b"WARC/"):
                yield self._fault(place, "not_warc", f"expected `WARC/1.0`, found {line[:20]!r}")
                if not (line := self._next_version()):
                    return
                place = self._stream.place(line)
            headers = http.parse_headers(self._header_lines())
            record = _Record(self._number, place, headers)
            size = headers.get("content-length", "")
            if not (size.isascii() and size.isdecimal()):
                detail = f"expected a record's Content-Length in bytes, found `{size[:20]}`"
                yield self._fault(place, "not_warc", detail)
            else:
                yield from self._record(record, int(size))

    def _header_lines(self) -> list[str]:
        lines: list[str] = []
        while (line := self._stream.line(_LONGEST_LINE).rstrip(b"\r\n")) and len(lines) < _MOST_LINES:
            lines.append(line.decode("utf-8", "replace"))
        return lines

    def _next_version(self) -> bytes:
        """The next line that begins a record; nothing where there is none."""
        while (line := self._stream.line(_LONGEST_LINE)) and not line.startswith(b"WARC/1"):
            pass
        return line

    def _record(self, record: _Record, size: int) -> Iterator[Document | Fault]:
        if record.kind not in _WITH_DOCUMENTS or size > self._most:
            passed = self._stream.skip(size)
            if size > self._most and record.kind in _WITH_DOCUMENTS:
                yield self._reading.too_large(record.position, size)
        else:
            block = self._stream.block(size)
            passed = len(block)
            if passed == size:
                yield self._document(record, block)
        if passed < size:
            detail = f"the record has {size} bytes, of which {passed} are there"
            yield self._reading.fault(record.position, "truncated", detail)

    def _document(self, record: _Record, block: bytes) -> Document | Fault:
        """One page that cannot be taken costs none of those behind it."""
        if (why := self._reading.begin(record.position, len(block))) is not None:
            return self._reading.fault(record.position, POISONED, why)
        try:
            return self._text_or_why_not(record, block)
        except Undecodable as error:
            detail = f"byte {error.byte} of the body: {error.detail}"
            return self._reading.fault(record.position, error.reason, detail)
        except http.Undecoded as error:
            return self._reading.fault(record.position, error.reason, error.detail)
        except (StokerError, MemoryError):
            raise
        except Exception as error:
            return self._reading.fault(record.position, POISONED, f"cannot be read: {failure(error)}")

    def _text_or_why_not(self, record: _Record, block: bytes) -> Document | Fault:
        reading, position, identifier = self._reading, record.position, record.identifier
        if record.kind == "revisit":
            return reading.passed_over(position, "revisit", "the page is kept where it was seen first", identifier)
        if record.kind == "conversion":
            return reading.document(position, decode(block).replace("\r\n", "\n"), identifier)
        told = record.headers.get("content-type", "")
        body = block
        if record.kind == "response" and block.startswith(b"HTTP/"):
            response = http.parse_response(block, self._most)
            told, body = response.headers.get("content-type", ""), response.body
            if not 200 <= response.status < 300:
                return reading.passed_over(position, "http_status", f"HTTP status {response.status}", identifier)
        media, charset = http.parse_content_type(told)
        if media == "text/plain":
            return reading.document(
                position, decode_page(body, _encoding(charset)).replace("\r\n", "\n"), identifier
            )
        if "html" not in media and not (media == "" and _LOOKS_LIKE_HTML.search(body[:1024])):
            return reading.passed_over(position, "not_html", f"its media type is {media or 'not told'}", identifier)
        page = decode_page(body, reading.source.encoding or _encoding(charset))
        return reading.document(position, extract_text(page, reading.source.extraction), identifier)

    def _fault(self, place: int, reason: str, detail: str) -> Fault:
        return self._reading.fault(f"record {self._number}, byte {place}", reason, detail)


def _encoding(charset: str | None) -> str | None:
    with contextlib.suppress(UnicodeError):
        return known_encoding(charset) if charset else None
    return None
