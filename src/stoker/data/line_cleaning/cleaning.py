"""A text without the lines that are no part of it, and how many of each kind there were.

What can be text stays: verse, tables, lists, formulae, indented lines and code between fences. A line that only
may be furniture goes where it stands in a block of three such lines, or next to one that certainly is.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stoker.data.line_cleaning.furniture import LONGEST, NOT, SURE, judge_line

KINDS = ("furniture", "running_head", "symbols")
"""Kinds of lines that are cut out."""
_BLOCK = 3
_LONG_LINE, _SHORT_LINE = 30, 24
_MOST = 0.6
_LINE_OF_VERSE = 60
"""Bytes of a line that is shorter than a paragraph."""
_SENTENCE_ENDS = (".", "。", "．", "!", "！", "?", "？", ":", "：", "…")
_FENCE = ("```", "~~~")
_PAGE_NUMBER = re.compile(
    r"[ \t\f]*(?:[-–—·]\s*(\d{1,4})\s*[-–—·]|page\s+(\d{1,4})(?:\s*(?:of|/)\s*\d{1,4})?"
    r"|第\s*(\d{1,4})\s*页(?:[，,/ ]*共\s*\d{1,4}\s*页)?|(\d{1,4})\s*/\s*\d{1,4}|(\d{1,4}))[ \t\f]*",
    re.IGNORECASE,
)
_LEAST_PAGES = 3
_LEAST_LINES_OF_A_PAGE = 8
_NEAR_PAGE_NUMBER = 2
_LAYOUT = frozenset("-=_*~+#^|.·•─━═│┃┄┈:`<>{}()[]/\\$&%@;,!?'\"，。、；：？！…—“”‘’（）《》「」『』【】")
"""Signs that lay out text, quote it, or are code: a line of these can be a rule, an underline, a bracket."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was made of a text."""

    text: str
    lines: int
    """Lines that are not blank, before."""
    removed: Mapping[str, int]
    """Lines cut out, by kind."""


def clean_lines(text: str) -> Cleaned:
    """`text` without furniture, running heads with their page numbers, and rows of signs."""
    lines = text.split("\n")
    written = [number for number, line in enumerate(lines) if line and not line.isspace()]
    why: dict[int, str] = {}
    if written:
        free = [number for number in free_lines(lines) if len(lines[number]) <= LONGEST]
        why |= dict.fromkeys(_furniture(lines, written, free), "furniture")
        why |= dict.fromkeys(_running_heads(lines, written), "running_head")
        why |= dict.fromkeys((number for number in free if _only_signs(lines[number])), "symbols")
    if not why:
        return Cleaned(text, len(written), {})
    left = [line for number, line in enumerate(lines) if number not in why]
    return Cleaned(re.sub("\n{3,}", "\n\n", "\n".join(left)).strip("\n"), len(written), Counter(why.values()))


def free_lines(lines: Sequence[str]) -> list[int]:
    """Numbers of the lines that are not blank, nor indented as code is, nor rows of a table, nor between fences."""
    free: list[int] = []
    fenced = ""
    for number, line in enumerate(lines):
        if not line or line.isspace():
            continue
        if line[0] in "`~" or fenced:
            if not fenced and line.startswith(_FENCE):
                fenced = line[:3]
                continue
            if fenced:
                fenced = "" if line.startswith(fenced) else fenced
                continue
        if not line.startswith(("    ", "\t", "|")):
            free.append(number)
    return free


def _furniture(lines: Sequence[str], written: Sequence[int], free: Sequence[int]) -> list[int]:
    judged = {
        number: verdict
        for number in free
        if (verdict := judge_line(lines[number])) != NOT and not _goes_on(lines[number - 1] if number else "")
    }
    judged = {
        number: verdict for number, verdict in judged.items() if not _among_short_lines(lines, number, judged)
    }
    if not judged:
        return []
    out: set[int] = set()
    for block in _runs([number for number in written if number in judged], {n: at for at, n in enumerate(written)}):
        if len(block) >= _BLOCK or any(judged[one] == SURE for one in block):
            out.update(block)
    for first, last in _paragraphs(lines, judged):
        out.update(range(first, last + 1))
    return sorted(out)


def _among_short_lines(lines: Sequence[str], number: int, judged: Mapping[int, int]) -> bool:
    """Whether a line stands between two short ones that are no furniture, as a line of verse or of a list does."""
    if number == 0 or number + 1 == len(lines):
        return False
    return all(
        other not in judged and len(lines[other].strip()) > 0 and len(lines[other].encode()) <= _LINE_OF_VERSE
        for other in (number - 1, number + 1)
    )


def _runs(numbers: Sequence[int], place: Mapping[int, int]) -> list[list[int]]:
    """Lines that follow one another, blank lines aside."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and place[number] == place[runs[-1][-1]] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _paragraphs(lines: Sequence[str], judged: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """First and last lines of lists of links: short lines without a blank one between, most of them furniture."""
    done = -1
    for number in judged:
        if number <= done:
            continue
        first, last = number, number
        while first > 0 and _is_short(lines[first - 1]):
            first -= 1
        while last + 1 < len(lines) and _is_short(lines[last + 1]):
            last += 1
        done = last
        known = sum(one in judged for one in range(first, last + 1))
        if known >= _BLOCK and known >= _MOST * (last + 1 - first):
            yield first, last


def _is_short(line: str) -> bool:
    return 0 < len(line) <= _SHORT_LINE and not line.isspace() and line[0] not in "#|\t"


def _goes_on(line: str) -> bool:
    """Whether a line is one of running text that goes on in the next: long, and no sentence's end."""
    return len(line) >= _LONG_LINE and not line.rstrip().endswith(_SENTENCE_ENDS) and judge_line(line) == NOT


def _running_heads(lines: Sequence[str], written: Sequence[int]) -> set[int]:
    """Page numbers that count up, a page apart, and the lines that stand with them again and again."""
    place = {number: at for at, number in enumerate(written)}
    pages: list[tuple[int, int]] = []
    for number in written:
        if len(lines[number]) <= 24 and (match := _PAGE_NUMBER.fullmatch(lines[number])):
            pages.append((number, int(next(group for group in match.groups() if group))))
    run = [pages[0]] if pages else []
    for page in pages[1:]:
        if page[1] == run[-1][1] + 1 and place[page[0]] - place[run[-1][0]] >= _LEAST_LINES_OF_A_PAGE:
            run.append(page)
        elif len(run) < _LEAST_PAGES:
            run = [page]
    if len(run) < _LEAST_PAGES:
        return set()
    found = {number for number, _ in run}
    beside = Counter[str]()
    near: dict[str, list[int]] = {}
    for number, _ in run:
        at = place[number]
        for other in written[max(0, at - _NEAR_PAGE_NUMBER) : at + _NEAR_PAGE_NUMBER + 1]:
            if other not in found:
                beside[lines[other].strip()] += 1
                near.setdefault(lines[other].strip(), []).append(other)
    for line, times in beside.items():
        if times >= max(_LEAST_PAGES, len(run) / 2 - 1) and len(line) <= LONGEST:
            found.update(near[line])
    return found


def _only_signs(line: str) -> bool:
    """Whether a line is a row of three signs or more that are no layout: `★★★★★`, `◆ ◆ ◆`."""
    if line[0].isalnum() or line.isascii():  # all signs of ASCII are layout
        return False
    signs = line.replace(" ", "").replace("\u3000", "")
    return (
        len(signs) >= 3
        and not signs[0].isalnum()
        and all(one not in _LAYOUT and unicodedata.category(one) in ("So", "Sk") for one in signs)
    )
