"""Files that are read whole: text as one document, HTML pages, source code, and strings inside Python files."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

from stoker.data.document import Document, Fault
from stoker.data.extraction import extract_text
from stoker.data.reading import html, source_code
from stoker.data.reading.decoding import decode, decode_as
from stoker.data.reading.open import Damaged, read_at_most, read_chunks
from stoker.data.reading.read import Reading
from stoker.data.reading.units import Part

_MARKUP = 4
"""A page may be this many times larger than its text."""


def read(reading: Reading, part: Part) -> Iterator[Document | Fault]:
    """The document or documents of one file, never holding more than the limit in memory."""
    pages = reading.file.format == "html"
    damage: Fault | None = None
    try:
        raw = read_at_most(part.file.path, reading.maximum_bytes * (_MARKUP if pages else 1))
    except Damaged as error:
        # Of an archive that ends early, the text before the damage is kept.
        raw = _before_damage(reading, part)
        damage = reading.fault(f"byte {error.byte}", error.reason, error.detail)
    if raw is None:
        yield reading.too_large("file", None if part.file.path.suffix == ".gz" else part.file.path.stat().st_size)
        return
    if damage is None or raw:
        yield from _documents(reading, raw, pages, cut=damage is not None)
    if damage is not None:
        yield damage


def _before_damage(reading: Reading, part: Part) -> bytes:
    parts: list[bytes] = []
    with contextlib.suppress(Damaged):
        parts.extend(read_chunks(part.file.path))
    raw = b"".join(parts)
    return raw[: raw.rfind(b"\n") + 1]  # whole lines: a character may be cut at the very end


def _documents(reading: Reading, raw: bytes, pages: bool, cut: bool) -> Iterator[Document | Fault]:
    encoding = reading.source.encoding
    if encoding is not None:
        text = decode_as(raw, encoding)
    else:
        text = html.decode_page(raw) if pages else decode(raw)
    text = text.replace("\r\n", "\n")
    if reading.source.extract != "whole":
        yield from _strings(reading, text)
    elif pages:
        yield reading.document("file", extract_text(text, reading.source.extraction))
    else:
        yield reading.document("file", text)


def _strings(reading: Reading, text: str) -> Iterator[Document | Fault]:
    try:
        tree: ast.Module = source_code.parse_python(text)
    except SyntaxError as error:
        yield reading.fault(f"line {error.lineno or 1}", "not_python", f"cannot be parsed as Python ({error.msg})")
        return
    except (ValueError, RecursionError) as error:
        yield reading.fault("file", "not_python", f"cannot be parsed as Python ({error})")
        return
    wanted = source_code.docstrings if reading.source.extract == "docstrings" else source_code.long_strings
    for line, value in wanted(tree):
        yield reading.document(f"line {line}", value)
