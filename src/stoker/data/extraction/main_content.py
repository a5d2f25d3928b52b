"""Which part of a page is its main text: furniture is taken out, then the element that holds the rest is found."""

from __future__ import annotations

import re
from collections.abc import Collection
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
_PARAGRAPHS = frozenset(("p", "div", "section"))
_ENTRIES = frozenset(("li", "td", "th", "dd", "dt", "blockquote", "figure"))
"""Where a paragraph that is a link is an entry of a list or table."""
_CODE = frozenset(("code", "tt", "kbd", "samp", "var"))
_REFERENCE = re.compile(r"[_()/\\@=]|\w\.\w|[a-z][A-Z]")
_BUTTON = 40
"""UTF-8 bytes of the longest paragraph that is a link and no title of something else."""
_SENTENCE_ENDS = (".", "。", "!", "！", "?", "？", ":", "：", ";", "；")
_NO_LETTER = re.compile(r"[\W_]+")
_LEAST_LINKS = 3
_MAIN = 0.4
"""Least share of the running text of what is called the content."""
_NARROWER = 0.85
"""Share of the text that one element must have to be the narrower choice."""
_NARROWER_IN_CONTENT = 0.95
"""The same inside of what is called the content."""
_UNDER_TITLE = 0.4
"""Least share of the text that the element with the page's title has, where it is all of the main text."""
_MOST_STEPS = 50
_LARGER = 0.75
"""The same where what is beside it is rich in links."""
_LINKED_BESIDE = 0.3
_RUNNING = 0.2
"""Share of running text below which a page is one of lists."""
_ENOUGH = 200
"""UTF-8 bytes of running text in what is called the content with which the rest may be as large as it likes."""


@dataclass(frozen=True, slots=True)
class MainText:
    """Where the main text is in a page."""

    start: int
    """The entry whose subtree it is."""
    title: int | None
    """The heading outside of it that is its title."""
    dropped: bytearray
    """A flag for each entry whose subtree is furniture."""


@dataclass(frozen=True, slots=True)
class _Around:
    in_content: bool
    content_elsewhere: bool


def find_main(page: Page, measures: Measures) -> MainText:
    """The main text of a page that has at least one entry."""
    parts = _parts(page)
    dropped = _furniture(page, measures, parts)
    start = _narrowed(page, parts, measures, dropped)
    title = _title(page, start)
    if title is not None and title > start:
        start = _around_title(page, _without(measures.running, page, dropped), start, title)
    _drop_labels(page, measures, start, dropped)
    return MainText(start, title if title is not None and title < start else None, dropped)


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
    content = _content(page, measures, parts)
    within = _counts(page, content)
    enough = _counts(
        page, [i for i, part in enumerate(parts) if part is Part.CONTENT and measures.running[i] >= _ENOUGH]
    )
    i = inside_until = 0
    while i < len(page.tags):
        around = _Around(i < inside_until, enough[0] > enough[i])
        if not within[i] and _is_furniture(page, measures, i, parts[i], around):
            dropped[i] = 1
            i = page.ends[i]
        elif page.tags[i] == "pre":
            _drop_line_numbers(page, parts, i, dropped)
            i = page.ends[i]
        else:
            if i in content:
                inside_until = max(inside_until, page.ends[i])
            i += 1
    return dropped


def _counts(page: Page, entries: Collection[int]) -> list[int]:
    """How many of the entries are in each subtree, its root among them."""
    counts = [0] * len(page.tags)
    for i in entries:
        counts[i] = 1
    for i in range(len(counts) - 1, 0, -1):
        counts[page.parents[i]] += counts[i]
    return counts


def _content(page: Page, measures: Measures, parts: list[Part]) -> frozenset[int]:
    """The entries that say they are the content and hold enough of the text for it to be believed."""
    least, half = max(_MAIN * measures.running[0], 1), measures.text[0] / 2
    return frozenset(
        i
        for i, part in enumerate(parts)
        if part is Part.CONTENT and (measures.running[i] >= least or measures.text[i] >= half)
    )


def _is_furniture(page: Page, measures: Measures, i: int, part: Part, around: _Around) -> bool:
    share = measures.running[i] / max(1, measures.running[0])
    if part is Part.NEVER:
        return share < _MOST_NEVER or around.content_elsewhere
    if part is Part.FURNITURE:
        if around.in_content and page.tags[i] == "header":
            return False
        return share < _MOST_FURNITURE
    if part is Part.DETAIL:
        return measures.text[i] < _LONGEST_DETAIL and share < _MOST_FURNITURE
    if (
        part is Part.NOTHING
        and page.tags[i] in _CONTAINERS
        and measures.link_counts[i] >= _LEAST_LINKS
        and share < 0.05
    ):
        linked = measures.links[i] > _LINKED * measures.text[i]
        return linked and not around.in_content
    return False


def _drop_line_numbers(page: Page, parts: list[Part], start: int, dropped: bytearray) -> None:
    for i in range(start, page.ends[start]):
        dropped[i] = parts[i] is Part.NEVER and "line" in page.hints[i]


def _without(values: list[int], page: Page, dropped: bytearray) -> list[int]:
    """A measure of each entry without the furniture in it."""
    gone = [value if dropped[i] else 0 for i, value in enumerate(values)]
    for i in range(len(gone) - 1, 0, -1):
        gone[page.parents[i]] += gone[i]
    return [has - lost for has, lost in zip(values, gone, strict=True)]


def _narrowed(page: Page, parts: list[Part], measures: Measures, dropped: bytearray) -> int:
    """The narrowest entry that still holds nearly all of the text."""
    text, links = _without(measures.text, page, dropped), _without(measures.links, page, dropped)
    # Of a page of lists and indexes, all text counts; of any other, what can be read.
    listing = measures.running[0] < _RUNNING * measures.text[0]
    left = text if listing else _without(measures.running, page, dropped)
    at = from_here = 0
    share = _NARROWER
    content = [i for i, part in enumerate(parts) if part is Part.CONTENT and page.tags[i] in _GOES_INTO]
    for _ in range(_MOST_STEPS):
        called = [i for i in content if at < i < page.ends[at] and left[i] >= max(1, _MAIN * left[at])]
        if called:
            at = from_here = max(called, key=lambda i: (left[i], -i))
            share = _NARROWER_IN_CONTENT
            continue
        inner = _largest_child(page, left, at)
        if inner is None or page.tags[inner] not in _GOES_INTO:
            break
        if left[inner] < share * left[from_here]:
            if left[inner] < _LARGER * left[at] or not _is_beside_links(at, inner, text, links):
                break
            from_here = inner
        at = inner
    return at


def _is_beside_links(at: int, inner: int, text: list[int], links: list[int]) -> bool:
    """Whether what is beside `inner` in `at` is rich in links, and `inner` is not: a column of titles."""
    outside = text[at] - text[inner]
    linked = (links[at] - links[inner]) / max(1, outside)
    return linked > _LINKED_BESIDE and linked > 2 * links[inner] / max(1, text[inner])


def _largest_child(page: Page, left: list[int], at: int) -> int | None:
    best: int | None = None
    child = at + 1
    while child < page.ends[at]:
        if best is None or left[child] > left[best]:
            best = child
        child = page.ends[child]
    return best


def _drop_labels(page: Page, measures: Measures, start: int, dropped: bytearray) -> None:
    """Flag the blocks whose whole text is a phrase of furniture, such as `上一篇：…`, or that are buttons."""
    i, end, in_entry = start + 1, page.ends[start], 0
    reads = measures.running[start] >= _RUNNING * measures.text[start]
    while i < end:
        if dropped[i] or page.tags[i] == "pre":
            i = page.ends[i]
            continue
        if page.tags[i] in _ENTRIES:
            in_entry = max(in_entry, page.ends[i])
        if page.tags[i] in _LABELLED:
            inner = range(i + 1, page.ends[i])
            if not any(page.tags[k] in BLOCKS or page.tags[k] == FORMULA for k in inner):
                text = " ".join("".join(page.texts[k] for k in inner).split())
                button = reads and i >= in_entry and _is_button(page, measures, i, text)
                dropped[i] = bool(text) and len(text) <= LONGEST and (button or judge_line(text) == SURE)
        i += 1


def _is_button(page: Page, measures: Measures, i: int, text: str) -> bool:
    """Whether a paragraph among running text is a few words that lead away: `Read more`, `阅读全文`.

    It is all link and no sentence, whatever its words are; names of code and addresses are references.
    """
    return (
        page.tags[i] in _PARAGRAPHS
        and len(text.encode()) <= _BUTTON
        and measures.links[i] >= measures.text[i]
        and not text.endswith(_SENTENCE_ENDS)
        and _REFERENCE.search(text) is None
        and not any(page.tags[k] in _CODE for k in range(i + 1, page.ends[i]))
    )


def _title(page: Page, start: int) -> int | None:
    """The heading that the window's title repeats: the first one in the subtree at `start`, or else before it."""
    wanted = _letters(page.title)
    before: int | None = None
    for i in range(page.ends[start]):
        if page.tags[i] in ("h1", "h2", "h3"):
            own = _letters("".join(page.texts[i : min(page.ends[i], i + 100)]))
            if own and own in wanted:
                if i > start:
                    return i
                before = i
    return before


def _around_title(page: Page, left: list[int], start: int, title: int) -> int:
    """The narrowest entry around the title that holds a good part of the text: what it is the title of."""
    at = page.parents[title]
    while at > start and (left[at] < max(_ENOUGH, _UNDER_TITLE * left[start]) or page.tags[at] not in _GOES_INTO):
        at = page.parents[at]
    return max(at, start)


def _letters(text: str) -> str:
    return _NO_LETTER.sub("", text).lower()
