"""How much text each element of a page holds, how much of it in links, and how much in running text."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.data.extraction.page import BLOCKS, FORMULA, TEXT, Page

RUNNING = 40
"""UTF-8 bytes of text outside of links from which a block counts as running text."""
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6", "hr", "th", "caption", "legend"))


@dataclass(slots=True)
class Measures:
    """For each entry of a page, over its subtree, in UTF-8 bytes: a Chinese character counts as three letters."""

    text: list[int]
    links: list[int]
    """Inside of links."""
    running: list[int]
    """In blocks that are running text rather than labels."""
    link_counts: list[int]


def measure(page: Page) -> Measures:
    """Measures of all entries, in two passes."""
    size = len(page.tags)
    text, links, running, counts = [0] * size, [0] * size, [0] * size, [0] * size
    block = _own_text(page, text, links)
    own, own_links = [0] * size, [0] * size
    for i in range(size):
        if text[i]:
            own[block[i]] += text[i]
            own_links[block[i]] += links[i]
    for i in range(size):
        if own[i]:
            running[i] = _running(page.tags[i], own[i], own_links[i])
    tags, parents = page.tags, page.parents
    for i in range(size - 1, 0, -1):
        parent = parents[i]
        text[parent] += text[i]
        links[parent] += links[i]
        running[parent] += running[i]
        counts[parent] += counts[i] + (tags[i] == "a" and text[i] > 0)
    return Measures(text, links, running, counts)


def _own_text(page: Page, text: list[int], links: list[int]) -> list[int]:
    """Fill in the measures of texts; the number of the block that each entry is directly in."""
    tags, parents, texts = page.tags, page.parents, page.texts
    block, linked = [0] * len(tags), [False] * len(tags)
    for i, tag in enumerate(tags):
        parent = parents[i] if i else 0
        linked[i] = linked[parent] or tag == "a"
        if tag in (TEXT, FORMULA):
            written = texts[i].strip()
            if written:
                text[i] = len(written) if written.isascii() else len(written.encode("utf-8", "replace"))
                links[i] = text[i] if linked[i] else 0
            block[i] = block[parent]
        else:
            block[i] = i if tag in BLOCKS else block[parent]
    return block


def _running(tag: str, own: int, own_links: int) -> int:
    if tag == "pre":
        return own
    plain = own - own_links
    return plain if plain >= RUNNING and own_links * 2 <= own and tag not in _HEADINGS else 0
