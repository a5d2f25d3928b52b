"""The main text of a page as plain text: paragraphs, list items, table rows, code as it is, formulae as TeX."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoker.data.extraction.page import BLOCKS, FORMULA, TEXT, Page

_PARAGRAPHS_WORDS = "p pre blockquote h1 h2 h3 h4 h5 h6 table ul ol dl article section figure"
_PARAGRAPHS = frozenset(_PARAGRAPHS_WORDS.split())
_LISTS = frozenset(("ul", "ol", "menu"))
_CELLS = frozenset(("td", "th"))
_BROKEN_CELLS = frozenset(("pre", "table", "ul", "ol", "dl"))
_LOOKED_AT = 200
"""Entries of a cell or an item; one of more is taken for what it mostly is: no line, and not empty."""
_MOST_INDENTED = 16
"""Blanks before an item, however deep its list is: a page must not grow by being read."""
_LINES_OF_CODE = frozenset(("div", "li", "tr", "p"))
_LINE_END_OF_CODE = "\x1e"
"""Stands for a line end inside `<pre>` until blank lines outside of it are counted."""
_SPACES = re.compile(r"[ \t\r\n\f\u200b]+")
_WIDE = "[\u2e80-\u312f\u31a0-\ua4cf\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff]"
_BETWEEN_WIDE = re.compile(rf"(?<={_WIDE})[ \t]*[\r\n][ \t\r\n]*(?={_WIDE})")
"""A line end of the page's source between Chinese or Japanese characters, which is no space (CSS Text 3, 4.1.3)."""
_POWER = re.compile(r"[+\-−]?\d{1,4}|[+\-−]?[b-df-np-zA-Z]")
_SPACE_BEFORE_END = re.compile(r"[ \t]+\n")


def render(page: Page, start: int, dropped: bytearray) -> str:
    """The text of the subtree at `start` without what is dropped; paragraphs are separated by blank lines."""
    writer = _Writer(page, dropped)
    writer.write(start)
    return writer.text()


@dataclass(slots=True)
class _List:
    number: int
    """Of its last item, -1 where items have none."""
    indent: int
    """Blanks before its items."""
    inner: int = 0
    """Blanks before the items of a list inside of its last item."""


class _Writer:
    def __init__(self, page: Page, dropped: bytearray) -> None:
        self._page, self._dropped = page, dropped
        self._parts: list[str] = []
        self._gap = 0
        """Line ends that come before the next text: 1 between lines, 2 between paragraphs."""
        self._open: list[tuple[int, int, str]] = []
        """End, beginning and tag of each block that is open."""
        self._lists: list[_List] = []
        """Those that are open."""
        self._marked = -1
        """How many parts there were behind the mark of the last item."""
        self._flat = range(0)
        """What is in a cell whose blocks are put in one line."""

    def write(self, start: int) -> None:
        """Append the subtree at `start`."""
        page, i, end = self._page, start, self._page.ends[start]
        while i < end:
            while self._open and self._open[-1][0] <= i:
                self._close()
            tag = page.tags[i]
            if self._dropped[i]:
                i = page.ends[i]
            elif tag == TEXT:
                self._text(page.texts[i])
                i += 1
            elif tag == FORMULA:
                self._formula(page.texts[i])
                i += 1
            elif tag == "pre":
                self._code(i)
                i = page.ends[i]
            else:
                self._element(i, tag)
                i += 1
        while self._open:
            self._close()

    def text(self) -> str:
        """All that was written."""
        joined = _SPACE_BEFORE_END.sub("\n", "".join(self._parts))
        return joined.strip("\n").rstrip().replace(_LINE_END_OF_CODE, "\n")

    def _append(self, text: str) -> None:
        if self._gap and self._parts:
            self._parts.append("\n" * self._gap)
        self._gap = 0
        self._parts.append(text)

    def _text(self, written: str) -> None:
        text = _SPACES.sub(" ", _BETWEEN_WIDE.sub("", written.replace(_LINE_END_OF_CODE, "")))
        if self._gap or not self._parts or self._parts[-1].endswith((" ", "\t")):
            text = text.removeprefix(" ")
        if text:
            self._append(text)

    def _formula(self, tex: str) -> None:
        if tex.startswith("$$"):
            self._gap = 2
            self._append(_SPACES.sub(" ", tex))
            self._gap = 2
        else:
            self._text(tex)

    def _element(self, i: int, tag: str) -> None:
        if tag == "br":
            if i in self._flat:
                self._text(" ")
            else:
                self._gap = min(2, self._gap + 1)
        elif tag == "sup":
            self._power(i)
        elif tag in _CELLS:
            self._cell(i)
        elif tag in BLOCKS:
            self._break(tag, i)
            if tag in _LISTS:
                first = self._page.numbers.get(i, 1) - 1 if tag == "ol" else -1
                self._lists.append(_List(first, self._lists[-1].inner if self._lists else 0))
            self._open.append((self._page.ends[i], i, tag))
            if tag == "li":
                self._item(i)

    def _item(self, i: int) -> None:
        inner = range(i + 1, self._page.ends[i])
        if len(inner) < _LOOKED_AT and not any(self._page.texts[k].strip() for k in inner):
            return
        own = self._lists[-1] if self._lists else _List(-1, 0)
        if own.number >= 0:
            own.number = self._page.numbers.get(i, own.number + 1)
        mark = f"{own.number}. " if own.number >= 0 else "- "
        own.inner = min(own.indent + len(mark), _MOST_INDENTED)
        begins_line = self._gap > 0 or not self._parts
        self._append(" " * own.indent + mark if begins_line else mark)
        self._marked = len(self._parts)

    def _cell(self, i: int) -> None:
        if self._parts and not self._gap:
            self._parts[-1] = self._parts[-1].rstrip(" ")
            self._parts.append("\t")
        inner = range(i + 1, self._page.ends[i])
        if len(inner) < _LOOKED_AT and not any(self._page.tags[k] in _BROKEN_CELLS for k in inner):
            self._flat = inner

    def _power(self, i: int) -> None:
        """A power that is raised on a page must not become a digit of its base."""
        inner = "".join(self._page.texts[i : min(self._page.ends[i], i + 8)]).strip()
        before = self._parts[-1][-1:] if self._parts else ""
        if (before.isalnum() or before == ")") and _POWER.fullmatch(inner):
            self._parts.append("^")

    def _code(self, i: int) -> None:
        page, k, line_end = self._page, i + 1, -1
        parts: list[str] = []
        while k < page.ends[i]:
            if self._dropped[k]:
                k = page.ends[k]
                continue
            tag = page.tags[k]
            begins_line = tag in _LINES_OF_CODE or 0 <= line_end <= k
            if tag == "br" or (begins_line and parts and not parts[-1].endswith("\n")):
                parts.append("\n")
            if begins_line:
                line_end = page.ends[k] if tag in _LINES_OF_CODE else -1
            if page.texts[k]:
                parts.append(page.texts[k])
            k += 1
        code = "".join(parts).replace(_LINE_END_OF_CODE, "").strip("\n").rstrip()
        if code:
            self._gap = 2
            self._append(code.replace("\n", _LINE_END_OF_CODE))
            self._gap = 2

    def _break(self, tag: str, i: int) -> None:
        if i in self._flat:
            self._text(" ")
        elif len(self._parts) != self._marked:  # a paragraph that begins an item stays behind its mark
            is_inner = tag in _LISTS and len(self._lists) > 0
            self._gap = max(self._gap, 2 if tag in _PARAGRAPHS and not is_inner else 1)

    def _close(self) -> None:
        _, start, tag = self._open.pop()
        if tag in _LISTS:
            self._lists.pop()
        self._break(tag, start)
