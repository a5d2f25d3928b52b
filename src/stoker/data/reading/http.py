"""HTTP responses as crawls keep them: header, transfer and content encodings, and what type and charset they are.

RFC 9112 (messages) and RFC 9110 (content encodings). Crawlers often keep the header of a response whose body they
have decoded already, so what a header says about encodings is tried, not believed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import zstandard

_STEP = 1 << 16


class Undecoded(Exception):
    """A body that cannot be decoded. `reason` is a fault's reason."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class Response:
    """A response whose body is decoded."""

    status: int
    """0 where the status line is none."""
    headers: dict[str, str]
    """Names in lower case; of a repeated header the last."""
    body: bytes


def parse_response(block: bytes, most: int) -> Response:
    """The response in a record's block.

    Raises `Undecoded` where the body is damaged, is in an encoding that cannot be read here, or holds more than
    `most` bytes.
    """
    head, body = _split(block)
    lines = head.decode("latin-1").splitlines()
    words = lines[0].split(None, 2) if lines else []
    status = int(words[1]) if len(words) > 1 and words[0].startswith("HTTP/") and words[1].isdecimal() else 0
    headers = parse_headers(lines[1:])
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = _joined_chunks(body)
    for name in reversed(headers.get("content-encoding", "").lower().split(",")):
        body = _decoded(body, name.strip(), most)
    return Response(status, headers, body)


def parse_headers(lines: list[str]) -> dict[str, str]:
    """Header lines as a mapping, names in lower case; lines that begin with a blank continue the one before."""
    headers: dict[str, str] = {}
    name = ""
    for line in lines:
        if line[:1] in (" ", "\t") and name:
            headers[name] += " " + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            headers[name] = value.strip()
    return headers


def parse_content_type(value: str) -> tuple[str, str | None]:
    """The media type in lower case, and the charset where one is named."""
    kind, *parameters = value.split(";")
    for parameter in parameters:
        name, _, given = parameter.partition("=")
        if name.strip().lower() == "charset" and given.strip(" \"'"):
            return kind.strip().lower(), given.strip(" \"'")
    return kind.strip().lower(), None


def _split(block: bytes) -> tuple[bytes, bytes]:
    ends = [(at, len(end)) for end in (b"\r\n\r\n", b"\n\n") if (at := block.find(end)) >= 0]
    if not ends:
        return block, b""
    at, size = min(ends)
    return block[:at], block[at + size :]


def _joined_chunks(body: bytes) -> bytes:
    """The body without the sizes between its chunks; as it is where those are no longer there."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\n", at, at + 64)
        size_text = body[at:end].split(b";")[0].strip() if end >= 0 else b""
        try:
            size = int(size_text, 16)
        except ValueError:
            return b"".join(parts) if parts else body  # cut off, or joined before
        if size <= 0:
            return b"".join(parts)
        parts.append(body[end + 1 : end + 1 + size])
        at = end + 1 + size
        at += 2 if body[at : at + 2] == b"\r\n" else 1
        if at >= len(body):
            return b"".join(parts)


def _decoded(body: bytes, name: str, most: int) -> bytes:
    if name in ("gzip", "x-gzip"):
        return _inflated(body, 31, most) if body.startswith(b"\x1f\x8b") else body
    if name == "deflate":
        is_zlib = len(body) > 1 and body[0] & 15 == 8 and (body[0] * 256 + body[1]) % 31 == 0
        return body if body.lstrip()[:1] == b"<" else _inflated(body, 15 if is_zlib else -15, most)
    if name == "br":
        return body if body.lstrip()[:1] == b"<" else _unbrotlied(body, most)
    if name == "zstd":
        return _unzstd(body, most) if body.startswith(b"\x28\xb5\x2f\xfd") else body
    return body  # identity, or an invention of the server


def _inflated(body: bytes, wbits: int, most: int) -> bytes:
    try:
        # Also of a body that was cut off, everything before the cut.
        data = zlib.decompressobj(wbits=wbits).decompress(body, most + 1)
    except zlib.error as error:
        raise Undecoded("damaged", f"the body is damaged ({error})") from None
    return _limited(data, most)


def _unzstd(body: bytes, most: int) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            data = reader.read(most + 1)
    except zstandard.ZstdError as error:
        raise Undecoded("damaged", f"the body is damaged ({error})") from None
    return _limited(data, most)


def _unbrotlied(body: bytes, most: int) -> bytes:
    try:
        import brotli
    except ImportError:
        raise Undecoded(
            "unknown_encoding", "the body is compressed by brotli; run `pip install 'stoker[brotli]'`"
        ) from None
    decoder = brotli.Decompressor()
    step: Callable[[bytes], bytes] = lambda data: decoder.process(data, output_buffer_limit=_STEP)  # noqa: E731
    parts: list[bytes] = []
    size = 0
    try:
        data = step(body)
        while data or not (decoder.is_finished() or decoder.can_accept_more_data()):
            parts.append(data)
            size += len(data)
            if size > most:
                break
            data = step(b"")
    except brotli.error as error:
        raise Undecoded("damaged", f"the body is damaged ({error})") from None
    return _limited(b"".join(parts), most)


def _limited(data: bytes, most: int) -> bytes:
    if len(data) > most:
        raise Undecoded("too_large", f"the body holds more than {most} bytes when it is decompressed")
    return data
