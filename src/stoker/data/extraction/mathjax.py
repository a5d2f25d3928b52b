"""What MathJax 3 and 4 drew of a formula, as TeX: from hidden MathML, from the TeX that it notes, or from glyphs.

Pages are often saved without the MathML that is there for those who cannot see. Then the drawing has its TeX as
`data-latex`, or what a voice would say as `aria-label`, or nothing but glyphs, whose names are code points. Glyphs
in a row are read; where they stand over one another, a marker says that a formula was here, since TeX that is
nearly right is wrong.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from selectolax.lexbor import LexborNode

from stoker.data.extraction.formulae import Attributes, delimited, of_mathml, symbol

_GLYPH = re.compile(r"mjx-c([0-9A-F]{2,6})(?:\s|$)")
_CODE_POINT = re.compile("[0-9A-F]{2,6}")
_ROWS = frozenset(("math", "mrow", "texatom", "mstyle", "mpadded"))
_SYMBOLS = frozenset(("mi", "mn", "mo"))
_SPACES = frozenset(("mspace", "mphantom"))
_LONGEST_LABEL = 400
_MOST_NESTED = 60


def of_container(node: LexborNode, attributes: Attributes) -> str:
    """The formula of a `<mjx-container>`: TeX between dollar signs, or `[formula]`, with what a voice would say."""
    display = attributes.get("display") == "true"
    mathml = node.css_first("math")
    if mathml is not None:
        tex = of_mathml(mathml, {**mathml.attributes, "display": "block" if display else "inline"})
        if tex:
            return tex
    drawn = node.css_first("mjx-math, [data-mml-node=math]")
    noted = attributes.get("data-latex") or (None if drawn is None else _noted(drawn))
    if noted and noted.strip():
        return delimited(noted, display)
    spoken = attributes.get("aria-label") or (None if drawn is None else drawn.attributes.get("aria-label"))
    if spoken and spoken.strip():
        return f"[formula: {' '.join(spoken.split())[:_LONGEST_LABEL]}]"
    read = None if drawn is None else _in_a_row(drawn, 0)
    return delimited(read, display) if read else "[formula]"


def _noted(drawn: LexborNode) -> str | None:
    """The TeX that a drawing notes: of all of it, or of each of its parts in a row."""
    whole = drawn.attributes.get("data-latex")
    if whole is not None:
        return whole
    parts = [part.attributes.get("data-latex") for part in _children(drawn)]
    return " ".join(part for part in parts if part) if parts and all(part is not None for part in parts) else None


def _in_a_row(drawn: LexborNode, depth: int) -> str | None:
    """TeX of glyphs that stand in a row; None where anything else was drawn."""
    name = (drawn.attributes.get("data-mml-node") or (drawn.tag or "").removeprefix("mjx-")).lower()
    if name in _SPACES:
        return ""
    if name in _SYMBOLS:
        glyphs = "".join(_glyphs(drawn))
        return symbol(unicodedata.normalize("NFKC", glyphs), name) if glyphs else None
    if name not in _ROWS or depth > _MOST_NESTED:
        return None
    parts = [_in_a_row(part, depth + 1) for part in _children(drawn)]
    known = [part for part in parts if part is not None]
    return " ".join(part for part in known if part) if len(known) == len(parts) else None


def _glyphs(drawn: LexborNode) -> Iterator[str]:
    for node in drawn.css("mjx-c, use, path"):
        name = node.attributes.get("data-c")
        if name is None:
            found = _GLYPH.search(node.attributes.get("class") or "")
            name = None if found is None else found[1]
        if name is not None and _CODE_POINT.fullmatch(name) and (point := int(name, 16)) < 0x110000:
            yield chr(point)
    for node in drawn.css("mjx-utext, text"):  # what its fonts have no glyph for
        yield node.text(deep=True)


def _children(node: LexborNode) -> Iterator[LexborNode]:
    child = node.child
    while child is not None:
        if not child.is_text_node and not child.is_comment_node:
            yield child
        child = child.next
