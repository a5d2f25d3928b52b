"""What readers yield: a document, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.recipe import Kind


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of text, and where it came from."""

    source: str
    """Name of the recipe's source."""
    kind: Kind
    language: str | None
    identifier: str
    """Names the document within its source: the recipe's `id_field`, or else file and position."""
    file: str
    """The file as it is shown to the user: relative to the recipe, or `package:path` inside a package."""
    position: str
    """Where in the file: `file` (all of it), `line 12`, `row 12`, `paragraph 12`, `string at line 12`,
    `record 12, byte 3456, https://…`; behind others, too, the address of the page where `url_field` says it."""
    text: str
    passed_over: str | None = None
    """Why the reader took no text from it though nothing is wrong with it: `not_html`, `http_status`, `revisit`."""
    detail: str | None = None
    """The same for people."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that should have been a document and cannot be read."""

    source: str
    file: str
    position: str
    """As in `Document`, with the byte where that helps: `line 12, byte 3456`."""
    reason: str
    """One word for counting: `undecodable`, `binary`, `truncated`, `damaged`, `too_large`, `not_json`,
    `no_text_field`, `wrong_type`, `unreadable`, `not_python`, `not_warc`, `unknown_encoding`."""
    detail: str
    """The same for people: what was expected and what came."""
