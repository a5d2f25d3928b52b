"""A page as flat lists in document order, with what the search for its main text needs of each element."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

from stoker.data.extraction import formulae, mathjax
from stoker.data.extraction.bounds import bounded

TEXT = "#text"
FORMULA = "#formula"
_DROPPED_WORDS = (
    "style head noscript svg template iframe button select textarea object canvas audio video map dialog input "
    "datalist optgroup option meta link title frameset -comment -doctype"
)
_DROPPED = frozenset(_DROPPED_WORDS.split())
_BLOCKS_WORDS = (
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer "
    "form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol p pre section summary table tbody td "
    "tfoot th thead tr ul"
)
BLOCKS = frozenset(_BLOCKS_WORDS.split())
_NO_ATTRIBUTES: dict[str, str | None] = {}
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_NUMBERED = {"ol": "start", "li": "value"}
"""Elements of lists, and which attribute has their number."""
_SMALL_NUMBER = re.compile("[0-9]{1,6}")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(slots=True)
class Page:
    """Elements, texts and formulae in document order. A subtree is a run: `range(i, ends[i])`."""

    title: str = ""
    """Of the window."""
    tags: list[str] = field(default_factory=list)
    """`#text` and `#formula` for what is no element."""
    parents: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Of a text or formula; empty for an element."""
    hints: list[str] = field(default_factory=list)
    """Class in lower case, words apart."""
    ids: list[str] = field(default_factory=list)
    """Id, the same way."""
    roles: list[str] = field(default_factory=list)
    """What the page says an element is for: its ARIA role or its `itemprop`."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Of a list: the number of its first item; of an item: its own. Only where the page says them."""


def parse(html: str) -> Page:
    """The visible body of a page. Scripts, styles, controls and hidden elements are left out."""
    parser = LexborHTMLParser(bounded(html))
    page = Page()
    titled = parser.css_first("title")
    page.title = "" if titled is None else titled.text(deep=True).strip()
    root = parser.body or parser.root
    if root is not None:
        _Walk(page).through(root)
    return page


class _Walk:
    def __init__(self, page: Page) -> None:
        self._page = page

    def through(self, root: LexborNode) -> None:
        """Append `root` and what is under it to the page, without recursion: pages may nest deeply."""
        page = self._page
        opened: list[int] = []
        above: list[LexborNode] = []
        node: LexborNode | None = root
        while node is not None:
            inner = self._enter(node, opened[-1] if opened else -1)
            if inner is not None:
                opened.append(len(page.tags) - 1)
                above.append(node)
                node = inner
                continue
            while node is not None:
                following = node.next if above else None
                if following is not None:
                    node = following
                    break
                if not above:
                    node = None
                    break
                node = above.pop()
                page.ends[opened.pop()] = len(page.tags)

    def _enter(self, node: LexborNode, parent: int) -> LexborNode | None:
        """Append one node; its first child where the walk goes into it."""
        tag = node.tag or ""
        if tag == "-text":
            self._append(TEXT, parent, node.text_content or "")
            return None
        if tag in _DROPPED:
            return None
        attributes = node.attributes or _NO_ATTRIBUTES
        if tag in ("math", "script", "img"):
            self._formula(node, tag, attributes, parent)
            return None
        if tag == "mjx-container":
            self._append(FORMULA, parent, mathjax.of_container(node, attributes))
            return None
        hint = identity = role = ""
        if attributes:
            hint, identity = _words(attributes.get("class") or ""), _words(attributes.get("id") or "")
            role = attributes.get("role") or attributes.get("itemprop") or ""
            if formulae.is_rendering(hint) or _is_hidden(attributes, hint):
                return None
            if "data-tex" in attributes:
                self._append(FORMULA, parent, formulae.delimited(attributes["data-tex"] or "", False))
                return None
        if tag == "a" and not attributes.get("href"):
            tag = "span"  # it leads nowhere, and in pages written as XML it is never closed
        self._append(tag, parent, "", hint, identity, role)
        if tag in _NUMBERED and (number := _number(attributes.get(_NUMBERED[tag]))) is not None:
            self._page.numbers[len(self._page.tags) - 1] = number
        return node.child

    def _formula(self, node: LexborNode, tag: str, attributes: formulae.Attributes, parent: int) -> None:
        if tag == "math":
            tex = formulae.of_mathml(node, attributes)
        elif tag == "script":
            tex = formulae.of_script(node, attributes) if formulae.is_formula_script(attributes) else ""
        else:
            tex = formulae.of_image(attributes, _words(attributes.get("class") or ""))
        # Beside its MathML, Wikipedia has the formula again as an image.
        if tex and not (tag == "img" and self._page.texts[-1:] and _same(self._page.texts[-1], tex)):
            self._append(FORMULA, parent, tex)

    def _append(self, tag: str, parent: int, text: str, hint: str = "", identity: str = "", role: str = "") -> None:
        page = self._page
        page.tags.append(tag)
        page.parents.append(parent)
        page.texts.append(text)
        page.hints.append(hint)
        page.ids.append(identity)
        page.roles.append(role)
        page.ends.append(len(page.tags))


def _number(written: str | None) -> int | None:
    return int(written) if written and _SMALL_NUMBER.fullmatch(written) else None


def _same(one: str, other: str) -> bool:
    return one.replace("$", "").split() == other.replace("$", "").split()


@lru_cache(1 << 14)
def _words(name: str) -> str:
    return _HUMP.sub(" ", name[:400]).lower().strip()


def _is_hidden(attributes: formulae.Attributes, hint: str) -> bool:
    if "mwe-math" in hint or "katex" in hint:
        return False  # hidden, and still the only place where the TeX is
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or ("style" in attributes and _HIDDEN.search(attributes["style"] or "") is not None)
    )
