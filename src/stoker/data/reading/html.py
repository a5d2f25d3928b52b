"""The readable text of an HTML page: no scripts, styles, menus or forms; code blocks as they are."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_DROPPED_WORDS = (
    "script style nav head noscript svg template iframe form button select textarea aside footer object "
    "canvas audio video map dialog"
)
_DROPPED = frozenset(_DROPPED_WORDS.split())
_BLOCKS_WORDS = (
    "address article blockquote body dd details div dl dt fieldset figcaption figure h1 h2 h3 h4 h5 h6 "
    "header hr html li main ol p pre section summary table tbody td tfoot th thead tr ul"
)
_BLOCKS = frozenset(_BLOCKS_WORDS.split())
_PARAGRAPHS_WORDS = "p pre blockquote h1 h2 h3 h4 h5 h6 table ul ol dl article section figure"
_PARAGRAPHS = frozenset(_PARAGRAPHS_WORDS.split())
_VOID_WORDS = "area base br col embed hr img input link meta param source track wbr"
_VOID = frozenset(_VOID_WORDS.split())
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_LINE_END_OF_CODE = "\x1e"
"""Stands for a line end inside `<pre>` until blank lines outside of it are counted."""
_SPACES = re.compile(r"[ \t\r\n\f]+")


def declared_encoding(raw: bytes) -> str | None:
    """What the page's own `<meta charset>` says, if it is an encoding this Python knows."""
    match = _META_CHARSET.search(raw[:4096])
    if match is None:
        return None
    name = match.group(1).decode("ascii", errors="replace").lower()
    # What browsers do: pages that claim the smaller set often use the larger.
    name = {"gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "iso-8859-1": "cp1252"}.get(name, name)
    try:
        "文".encode(name, errors="replace").decode(name)
    except (LookupError, ValueError):  # unknown, or something that is no encoding of text, such as rot13
        return None
    return name


def extract_text(page: str) -> str:
    """Readable text of a page; paragraphs are separated by blank lines. Any input gives some answer."""
    extractor = _Extractor()
    extractor.feed(page)
    extractor.close()
    return extractor.text()


class _Extractor(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._open: list[str] = []
        self._dropping = 0
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self._close_through("head")  # many pages never close it
        if tag not in _VOID:
            self._open.append(tag)
            self._dropping += tag in _DROPPED
            self._preformatted += tag == "pre"
        if self._dropping:
            return
        if tag == "br":
            self._parts.append("\n")
        elif tag in ("td", "th"):
            if self._parts and not self._parts[-1].endswith("\n"):
                self._parts.append("\t")
        elif tag in _BLOCKS:
            self._break(tag)
            if tag == "li":
                self._parts.append("- ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._close_through(tag)
        if not self._dropping and tag in _BLOCKS and tag not in ("td", "th"):
            self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._dropping:
            return
        if self._preformatted:
            self._parts.append(data.replace(_LINE_END_OF_CODE, "").replace("\n", _LINE_END_OF_CODE))
            return
        text = _SPACES.sub(" ", data)
        if not self._parts or self._parts[-1].endswith((" ", "\n", "\t")):
            text = text.removeprefix(" ")
        if text:
            self._parts.append(text)

    def _close_through(self, tag: str) -> None:
        """Close `tag` and whatever was left open inside it; a stray end tag closes nothing."""
        if tag not in self._open:
            return
        while True:
            closed = self._open.pop()
            self._dropping -= closed in _DROPPED
            self._preformatted -= closed == "pre"
            if closed == tag:
                return

    def _break(self, tag: str) -> None:
        self._parts.append("\n\n" if tag in _PARAGRAPHS else "\n")

    def text(self) -> str:
        joined = "".join(self._parts)
        joined = re.sub(r"[ \t]+\n", "\n", joined)
        joined = re.sub(r"\n{3,}", "\n\n", joined).strip("\n")
        return joined.replace(_LINE_END_OF_CODE, "\n")
