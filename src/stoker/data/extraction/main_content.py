"""Which part of a page is its main text: furniture is taken out, then the element that holds the rest is found."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoker.data.extraction.furniture import Part, part_of
from stoker.data.extraction.measuring import Measures
from stoker.data.extraction.page import BLOCKS, FORMULA, Page
from stoker.data.line_cleaning.furniture import LONGEST, SURE, judge_line

_CONTAINERS_WORDS = "div section ul ol table tbody tr td aside nav header footer form center menu dl"
_CONTAINERS = frozenset(_CONTAINERS_WORDS.split())
_NAMED = _CONTAINERS | frozenset(("main", "article", "li", "p", "figure", "details", "blockquote", "dd"))
"""Whose class or id may tell what they are. Of other elements only what is never content is taken out."""
_INLINE = frozenset(("span", "a", "sup", "small", "strong", "b", "i", "em", "label", "code", "td", "th"))
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_GOES_INTO_WORDS = "body div section article main td tr tbody table center form"
_GOES_INTO = frozenset(_GOES_INTO_WORDS.split())
_MOST_FURNITURE = 0.3
"""Of a page's running text; what holds more is a wrapper, whatever it is called."""
_MOST_NEVER = 0.6
_LONGEST_DETAIL = 250
_LINKED = 0.6
"""Share of the text in links from which a block is a list of links."""
_LABELLED = frozenset(("p", "div", "li", "td", "dd", "section"))
_NO_LETTER = re.compile(r"[\W_]+")
_LEAST_LINKS = 3
_MAIN = 0.4
"""Least share of the running text of what is called the content."""
_NARROWER = 0.85
"""Share of its text that an element must have in one child for that child to be the narrower choice."""


@dataclass(frozen=True, slots=True)
class MainText:
    """Where the main text is in a page."""

    start: int
    """The entry whose subtree it is."""
    title: int | None
    """The heading outside of it that is its title."""
    dropped: bytearray
    """A flag for each entry whose subtree is furniture."""


def find_main(page: Page, measures: Measures) -> MainText:
    """The main text of a page that has at least one entry."""
    parts = _parts(page)
    dropped = _furniture(page, measures, parts)
    left = _left(page, measures, dropped)
    start = _narrowed(page, parts, left)
    _drop_labels(page, start, dropped)
    return MainText(start, _title(page, start), dropped)


def _parts(page: Page) -> list[Part]:
    parts = [Part.NOTHING] * len(page.tags)
    for i, tag in enumerate(page.tags):
        hint, identity, role = page.hints[i], page.ids[i], page.roles[i]
        if tag in _NAMED:
            # A manual's section is named by its heading: one on comments is no section of comments.
            own = tag == "section" or hint.startswith(("section", "sect", "level"))
            parts[i] = part_of(tag, hint if own else f"{hint} {identity}", role)
        elif tag in _INLINE and hint:
            part = part_of(tag, hint, role)
            parts[i] = part if part is Part.NEVER else Part.NOTHING
    if parts:
        parts[0] = Part.NOTHING
    return parts


def _furniture(page: Page, measures: Measures, parts: list[Part]) -> bytearray:
    """A flag for each entry that is the root of a subtree of furniture."""
    dropped = bytearray(len(page.tags))
    total = max(1, measures.running[0] if page.tags else 0)
    content = _content(page, measures, parts)
    i = 0
    while i < len(page.tags):
        holds_content = any(i < at < page.ends[i] for at in content)
        inside = any(at < i < page.ends[at] for at in content)
        if not holds_content and _is_furniture(page, measures, i, parts[i], total, inside):
            dropped[i] = 1
            i = page.ends[i]
        elif page.tags[i] == "pre":
            _drop_line_numbers(page, parts, i, dropped)
            i = page.ends[i]
        else:
            i += 1
    return dropped


def _content(page: Page, measures: Measures, parts: list[Part]) -> list[int]:
    """The entries that say they are the content and hold enough of the text for it to be believed."""
    least = _MAIN * measures.running[0] if page.tags else 0
    return [i for i, part in enumerate(parts) if part is Part.CONTENT and measures.running[i] >= max(least, 1)]


def _is_furniture(page: Page, measures: Measures, i: int, part: Part, total: int, inside: bool) -> bool:
    share = measures.running[i] / total
    if part is Part.NEVER:
        return share < _MOST_NEVER
    if part is Part.FURNITURE:
        if inside and page.tags[i] == "header":
            return False
        return share < _MOST_FURNITURE
    if part is Part.DETAIL:
        return measures.text[i] < _LONGEST_DETAIL and share < _MOST_FURNITURE
    if page.tags[i] in _CONTAINERS and measures.link_counts[i] >= _LEAST_LINKS and share < 0.05:
        linked = measures.links[i] > _LINKED * measures.text[i]
        return linked and not inside
    return False


def _drop_line_numbers(page: Page, parts: list[Part], start: int, dropped: bytearray) -> None:
    for i in range(start, page.ends[start]):
        dropped[i] = parts[i] is Part.NEVER and "line" in page.hints[i]


def _left(page: Page, measures: Measures, dropped: bytearray) -> list[int]:
    """The running text of each entry without the furniture in it."""
    gone = [measures.running[i] if dropped[i] else 0 for i in range(len(page.tags))]
    for i in range(len(gone) - 1, 0, -1):
        gone[page.parents[i]] += gone[i]
    return [has - lost for has, lost in zip(measures.running, gone, strict=True)]


def _narrowed(page: Page, parts: list[Part], left: list[int]) -> int:
    """The narrowest entry that still holds nearly all of the text."""
    at = 0
    while left and left[at]:
        called = [
            i
            for i in range(at + 1, page.ends[at])
            if parts[i] is Part.CONTENT and left[i] >= _MAIN * left[at] and page.tags[i] in _GOES_INTO
        ]
        if called:
            at = max(called, key=lambda i: (left[i], -i))
            continue
        inner = _largest_child(page, left, at)
        if inner is None or left[inner] < _NARROWER * left[at] or page.tags[inner] not in _GOES_INTO:
            break
        at = inner
    return at


def _largest_child(page: Page, left: list[int], at: int) -> int | None:
    best: int | None = None
    child = at + 1
    while child < page.ends[at]:
        if best is None or left[child] > left[best]:
            best = child
        child = page.ends[child]
    return best


def _drop_labels(page: Page, start: int, dropped: bytearray) -> None:
    """Flag the blocks whose whole text is a phrase of furniture, such as `Share on …` or `上一篇：…`."""
    i, end = start + 1, page.ends[start]
    while i < end:
        if dropped[i] or page.tags[i] == "pre":
            i = page.ends[i]
            continue
        if page.tags[i] in _LABELLED:
            inner = range(i + 1, page.ends[i])
            if not any(page.tags[k] in BLOCKS or page.tags[k] == FORMULA for k in inner):
                text = " ".join("".join(page.texts[k] for k in inner).split())
                dropped[i] = bool(text) and len(text) <= LONGEST and judge_line(text) == SURE
        i += 1


def _title(page: Page, start: int) -> int | None:
    """The heading before `start` that the window's title repeats, unless there is such a one inside."""
    wanted = _letters(page.title)
    before: int | None = None
    for i in range(page.ends[start]):
        if page.tags[i] in ("h1", "h2", "h3"):
            own = _letters("".join(page.texts[i : page.ends[i]]))
            if own and own in wanted:
                if i > start:
                    return None
                before = i
    return before


def _letters(text: str) -> str:
    return _NO_LETTER.sub("", text).lower()
