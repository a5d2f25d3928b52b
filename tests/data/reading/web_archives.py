"""Web archives written record by record."""

from __future__ import annotations

import gzip

PAGE = b"<html><head><title>T</title></head><body><p>%s</p></body></html>"
SENTENCE = b"The furnace is fed with coal that was washed and weighed before the shift began."


def record(
    block: bytes, number: int = 1, kind: str = "response", length: int | None = None, **headers: str
) -> bytes:
    """A WARC record; `headers` have `_` for `-`."""
    lines = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{number:032d}>",
        "WARC-Target-URI": f"https://example.org/{number}",
        "Content-Length": str(len(block)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    return head.encode() + block + b"\r\n\r\n"


def response(body: bytes, kind: str = "text/html; charset=utf-8", status: str = "200 OK", **headers: str) -> bytes:
    """An HTTP response; `headers` have `_` for `-`."""
    lines = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return (f"HTTP/1.1 {status}\r\n" + "".join(f"{n}: {v}\r\n" for n, v in lines.items()) + "\r\n").encode() + body


def page(text: bytes = SENTENCE) -> bytes:
    """A response of a small page."""
    return response(PAGE % text)


def archive(*records: bytes) -> bytes:
    """A compressed archive: each record a gzip member."""
    return b"".join(gzip.compress(one, mtime=0) for one in records)
