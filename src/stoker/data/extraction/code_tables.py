"""Code that a page shows as a table, a line in each row, as sites of repositories do: made one block of code.

The cell of a line is told by its name, or by the cell of the line's number beside it. A table with other text in it
is one about code, and stays a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from stoker.data.extraction.page import TEXT, Page

_LINE = re.compile(
    r"(?:^|\s)(?:blob-code(?:-\S+)?|blob-line-code|lines?-code|code-lines?|hljs-ln-code|line_content)(?=\s|$)"
)
_NUMBER = re.compile(
    r"(?:^|\s)(?:blob-num(?:-\S+)?|blob-line-num|lines?-nums?|line-?no|linenos?|line-?numbers?|hljs-ln-n(?:umbers)?"
    r"|diff-line-num|old_line|new_line|gutter)(?=\s|$)"
)
_NUMBERS = re.compile(r"[\d\s+\-−.…@]{0,24}")
_ADDED, _REMOVED = re.compile(r"\S*addition|(?:^|\s)new(?:\s|$)"), re.compile(r"\S*deletion|(?:^|\s)old(?:\s|$)")
_BROKEN = frozenset(("pre", "table", "ul", "ol", "p"))


@dataclass(slots=True)
class _Table:
    rows: list[list[int]] = field(default_factory=list)
    """Cells of lines, row by row."""
    is_code: bool = True


def blocks_of_code(page: Page) -> None:
    """Make the tables of `page` that show code into `pre` elements without the numbers of lines."""
    for table, found in _tables(page).items():
        if found.is_code and any(found.rows):
            _rewrite(page, table, found.rows)


def _tables(page: Page) -> dict[int, _Table]:
    """Tables with cells of lines or of numbers, by entry."""
    tables: dict[int, _Table] = {}
    open_tables: list[int] = []
    for i, tag in enumerate(page.tags):
        while open_tables and page.ends[open_tables[-1]] <= i:
            open_tables.pop()
        if tag == "table":
            open_tables.append(i)
        elif tag == "tr" and open_tables:
            cells = list(_cells(page, i))
            named = [cell for cell in cells if _LINE.search(page.hints[cell])]
            numbers = [cell for cell in cells if _NUMBER.search(page.hints[cell])]
            if named or numbers:
                own = tables.setdefault(open_tables[-1], _Table())
                others = [cell for cell in cells if cell not in named and cell not in numbers]
                lines = named or others[:1]
                own.rows.append(lines)
                beside = [cell for cell in cells if cell not in lines]
                own.is_code &= all(_NUMBERS.fullmatch(_text(page, cell)) for cell in beside)
                own.is_code &= not any(_is_broken(page, cell) for cell in lines)
            elif any(_text(page, cell).strip() for cell in cells) and open_tables[-1] in tables:
                tables[open_tables[-1]].is_code = False
    return tables


def _cells(page: Page, row: int) -> Iterator[int]:
    child = row + 1
    while child < page.ends[row]:
        if page.tags[child] in ("td", "th"):
            yield child
        child = page.ends[child]


def _is_broken(page: Page, cell: int) -> bool:
    """Whether a cell holds more than a line."""
    return any(tag in _BROKEN for tag in page.tags[cell : page.ends[cell]])


def _text(page: Page, entry: int) -> str:
    return "".join(page.texts[entry : page.ends[entry]])


def _rewrite(page: Page, table: int, rows: list[list[int]]) -> None:
    changes = any(_mark(page, cell) != " " for cells in rows for cell in cells)
    kept: dict[int, str] = {}
    for cells in rows:
        changed = [cell for cell in cells if _mark(page, cell) != " "]
        for cell in changed or cells[:1]:  # beside one another, both sides have the lines that did not change
            line = _text(page, cell).replace("\r", "").strip("\n")
            kept[cell] = (_mark(page, cell) + line if changes else line) + "\n"
    for k in range(table, page.ends[table]):
        page.texts[k] = ""
    for cell, line in kept.items():
        inner = next((k for k in range(cell + 1, page.ends[cell]) if page.tags[k] == TEXT), cell)
        page.texts[inner] = line
    page.tags[table] = "pre"


def _mark(page: Page, cell: int) -> str:
    """What a line of a comparison begins with: `+`, `-` or a blank."""
    hint = page.hints[cell]
    return "+" if _ADDED.search(hint) else "-" if _REMOVED.search(hint) else " "
