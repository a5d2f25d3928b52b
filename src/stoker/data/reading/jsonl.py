"""One JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stoker.data.document import Document, Fault
from stoker.data.reading.lines import Line
from stoker.data.reading.read import Reading
from stoker.data.reading.text import decoded_lines
from stoker.data.reading.units import Part


def read(reading: Reading, part: Part) -> Iterator[Document | Fault]:
    """The text field of each line's object. A null text is an empty document; blank lines are nothing."""
    # A line may be larger than its text: escapes take up to twice the bytes, and there are other fields.
    limit = 4 * reading.maximum_bytes + (1 << 20)
    for found in decoded_lines(reading, part, limit):
        if isinstance(found, Fault):
            yield found
        elif found[1].strip():
            yield _document(reading, *found)


def _document(reading: Reading, line: Line, content: str) -> Document | Fault:
    source, position = reading.source, f"line {line.number}"
    precise = f"{position}, byte {line.byte}"
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        byte = line.byte + len(content[: error.pos].encode(errors="replace"))
        return reading.fault(f"{position}, byte {byte}", "not_json", f"expected a JSON object: {error.msg}")
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of thousands of digits
        return reading.fault(precise, "not_json", f"expected a JSON object: {error}")
    if not isinstance(value, dict):
        return reading.fault(precise, "wrong_type", f"expected a JSON object, found {_kind_of(value)}")
    if source.text_field not in value:
        fields = ", ".join(sorted(map(str, value))[:8]) or "none"
        return reading.fault(
            precise, "no_text_field", f"expected a field `{source.text_field}` (text_field), found: {fields}"
        )
    text = value[source.text_field]
    if text is None:
        text = ""
    if not isinstance(text, str):
        return reading.fault(
            precise, "wrong_type", f"field `{source.text_field}` must be a string, found {_kind_of(text)}"
        )
    address = value.get(source.url_field) if source.url_field is not None else None
    return reading.document(
        position, text, _identifier(source.id_field, value), address if isinstance(address, str) else None
    )


def _identifier(field: str | None, value: dict[str, Any]) -> str | None:
    found = value.get(field) if field is not None else None
    if isinstance(found, int):
        return str(found)
    return found if isinstance(found, str) and found.isprintable() else None


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
