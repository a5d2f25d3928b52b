"""Plain text files: one document for the file, for each line, or for each paragraph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from stoker.data.document import Document, Fault
from stoker.data.reading import whole
from stoker.data.reading.decoding import Undecodable, decode_as, decode_line, detect_encoding
from stoker.data.reading.lines import Line, split_lines, to_utf8
from stoker.data.reading.open import COMPRESSED, Damaged, read_chunks
from stoker.data.reading.read import Reading
from stoker.data.reading.units import SAMPLE_BYTES, Part, sampled_encoding


def read(reading: Reading, part: Part) -> Iterator[Document | Fault]:
    """Documents of a text file, as the source's `documents` says."""
    if reading.source.documents == "file":
        yield from whole.read(reading, part)
    elif reading.source.documents == "line":
        yield from _lines(reading, part)
    else:
        yield from _paragraphs(reading, part)


def _lines(reading: Reading, part: Part) -> Iterator[Document | Fault]:
    for found in decoded_lines(reading, part, reading.maximum_bytes):
        if isinstance(found, Fault):
            yield found
        elif found[1].strip():  # blank lines separate; they are no documents
            yield reading.document(f"line {found[0].number}", found[1])


def _paragraphs(reading: Reading, part: Part) -> Iterator[Document | Fault]:
    first, size = 0, 0
    held: list[str] = []
    faulty = False
    ending = [(Line(0, 0, b"", 0), "")]
    for found in itertools.chain(decoded_lines(reading, part, reading.maximum_bytes), ending):
        if isinstance(found, Fault):
            yield found
            faulty = True  # a paragraph with a hole in it is not kept
            continue
        line, text = found
        if text.strip():
            first = first or line.number
            size += line.size + 1
            if size <= reading.maximum_bytes + 1:
                held.append(text)
            continue
        if size > reading.maximum_bytes + 1:
            yield reading.too_large(f"line {first}", size)
        elif held and not faulty:
            yield reading.document(f"line {first}", "\n".join(held))
        first, size, held, faulty = 0, 0, [], False


def decoded_lines(reading: Reading, part: Part, limit: int) -> Iterator[tuple[Line, str] | Fault]:
    """Lines with their text. A line that is too long or no text is a fault, and reading goes on behind it."""
    encoding = reading.source.encoding
    text_of = decode_line if encoding is None else decode_as
    chunks = read_chunks(part.file.path, part.start, part.stop)
    damage: list[Fault] = []
    chunks = _until_damage(reading, chunks, damage)
    if encoding is None and part.file.path.suffix not in COMPRESSED:
        encoding = sampled_encoding(part.file.path)
    elif encoding is None:
        head, chunks = _head(chunks)
        encoding = detect_encoding(head, whole=False)
    if encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        chunks, encoding = to_utf8(chunks, encoding), "utf-8"
    elif encoding == "utf-8-sig":
        encoding = "utf-8"  # decode_as drops the mark; a mark inside the file is dropped too
    try:
        yield from _decoded(reading, split_lines(chunks, limit, part.first_line, part.start), encoding, text_of)
    except UnicodeDecodeError as error:
        yield reading.fault("file", "undecodable", f"not valid {error.encoding} any more ({error.reason})")
    yield from damage


def _decoded(
    reading: Reading, lines: Iterator[Line], encoding: str, text_of: Callable[[bytes, str], str]
) -> Iterator[tuple[Line, str] | Fault]:
    for line in lines:
        if line.content is None:
            yield reading.too_large(f"line {line.number}, byte {line.byte}", line.size)
            continue
        try:
            yield line, text_of(line.content, encoding)
        except Undecodable as error:
            yield reading.fault(f"line {line.number}, byte {line.byte + error.byte}", error.reason, error.detail)


def _until_damage(reading: Reading, chunks: Iterator[bytes], damage: list[Fault]) -> Iterator[bytes]:
    """The chunks before a damage; the damage itself is told afterwards, so that the last lines come first."""
    try:
        yield from chunks
    except Damaged as error:
        damage.append(reading.fault(f"byte {error.byte}", error.reason, error.detail))


def _head(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    taken: list[bytes] = []
    size = 0
    for chunk in chunks:
        taken.append(chunk)
        size += len(chunk)
        if size >= SAMPLE_BYTES:
            break
    return b"".join(taken), itertools.chain(taken, chunks)
