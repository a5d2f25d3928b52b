"""Pages made to be parsed in bounded time: no tag of thousands of attributes, no nesting of thousands of elements.

The parser takes time in the square of both. Text is never lost: only tags and attributes are.
"""

from __future__ import annotations

import re

MOST_NESTED = 400
"""Elements inside each other; browsers stop at 512."""
_TAGS_TO_LOOK_AT = 5_000
"""A page of fewer tags cannot nest so deeply that parsing takes a tenth of a second."""
_ATTRIBUTE = r"""(?:[\s/]++|[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+)"""
_CROWDED_TAG = re.compile(rf"<([a-zA-Z][^\s/<>]{{0,30}})(?=[\s/]){_ATTRIBUTE}{{1000,}}+")
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)"
    rf"|<(?:script|style|textarea|title|xmp)\b{_ATTRIBUTE}*+>.*?(?=</(?:script|style|textarea|title|xmp)\b|\Z)"
    rf"|<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*+){_ATTRIBUTE}*+>?",
    re.DOTALL | re.IGNORECASE,
)
_NOT_NESTED_WORDS = (
    "area base br col embed hr img input link meta param source track wbr p li dt dd option optgroup tr td th "
    "thead tbody tfoot colgroup rp rt"
)
_NOT_NESTED = frozenset(_NOT_NESTED_WORDS.split())
"""Without content, or closed by the next of their kind: inside each other only where another element is between."""


def bounded(page: str) -> str:
    """`page`, with attributes and tags left out where there are more than any page needs. In linear time."""
    page = _CROWDED_TAG.sub(r"<\1 ", page)
    return page if page.count("<") < _TAGS_TO_LOOK_AT else _flattened(page)


def _flattened(page: str) -> str:
    """Without the tags that would open an element inside `MOST_NESTED` others."""
    opened: list[str] = []
    counts: dict[str, int] = {}
    parts: list[str] = []
    copied = 0
    for match in _TAG.finditer(page):
        name = (match["name"] or "").lower()
        if not name or name in _NOT_NESTED:
            continue
        if match["end"]:
            if counts.get(name):
                while True:
                    closed = opened.pop()
                    counts[closed] -= 1
                    if closed == name:
                        break
        elif len(opened) < MOST_NESTED:
            opened.append(name)
            counts[name] = counts.get(name, 0) + 1
        else:
            parts.append(page[copied : match.start()])
            copied = match.end()
    return "".join((*parts, page[copied:]))
