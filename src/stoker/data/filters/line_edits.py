"""C4's rules for lines: what they reject is cut out, and the page goes on without it.

Raffel et al. 2020 (JMLR 21, section 2.2). They are in force with the rule set `c4`, for prose, and are
switched off by name in `data.cleaning.off`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_TERMINAL = (".", "!", "?", '"', "'", "”", "’", "。", "．", "！", "？", "…", "」")
_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_LONGEST_WORD = 1000
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")


def _too_few_words(line: str) -> bool:
    return len(line.split()) < 3 and len(_UNSPACED.findall(line)) < 3


def _long_word(line: str) -> bool:
    return len(line) > _LONGEST_WORD and not _UNSPACED.search(line) and max(map(len, line.split())) > _LONGEST_WORD


LINE_EDITS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "c4_line_end": (
        lambda line: not line.endswith(_TERMINAL),
        "lines that do not end in a full stop, exclamation mark, question mark or closing quotation mark",
    ),
    "c4_line_words": (_too_few_words, "lines of fewer than 3 words (in scripts without spaces, characters)"),
    "c4_line_long_word": (_long_word, "lines with a word of over 1000 characters"),
    "c4_line_javascript": (lambda line: "javascript" in line.lower(), "lines that speak of JavaScript"),
    "c4_line_policy": (
        lambda line: any(policy in line.lower() for policy in _POLICIES),
        "lines that speak of cookies, terms of use or a privacy policy",
    ),
}
"""Name -> (which lines go, without blanks at their end; the same in words)."""
CITATIONS = "c4_citations"
CITATIONS_MEANING = "marks of citations such as `[1]` and `[citation needed]`"


def edited_lines(text: str, names: tuple[str, ...]) -> str:
    """`text` without what the edits of these `names` cut out; empty when nothing is left."""
    if CITATIONS in names and "[" in text:
        text = _CITATION.sub("", text)
    edits = [LINE_EDITS[name][0] for name in names if name != CITATIONS]
    kept = []
    for line in text.split("\n"):
        own = line.strip()
        if not own or not any(goes(own) for goes in edits):
            kept.append(line)
    return "\n".join(kept).strip("\n")
