"""What in a text a measure is high for, where that can be pointed at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from stoker.plural import counted

_FEW = 3
LOOKED_AT = 1_000_000
"""Characters. Every run of words of a text of many millions would take gigabytes."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_TAG = re.compile(r"</?[a-z][a-z0-9]*|&#?[a-z0-9]+;", re.IGNORECASE)
_LONG_RUN = re.compile(r"(\S)\1{20,}")
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s/<>\"]+")


def evidence(measure: str, text: str) -> str | None:
    """What of `text` counts for a measure, most of all first; None where no single thing does.

    Of a long text it is looked for in the first `LOOKED_AT` characters, which is said.
    """
    look = _BY_MEASURE.get(measure)
    found = None if look is None else look(text[:LOOKED_AT])
    return found if found is None or len(text) <= LOOKED_AT else f"{found} (in its first {LOOKED_AT:,} characters)"


def _often(title: str, found: Iterable[str], least: int = 1) -> str | None:
    often = [(what, count) for what, count in Counter(found).most_common(_FEW) if count >= least]
    if not often:
        return None
    return f"{title}: " + ", ".join(
        f"{' '.join(what.split())[:60]!r} {counted(count, 'times')}" for what, count in often
    )


def _lines(text: str) -> str | None:
    return _often("lines that stand again", (line for line in text.split("\n") if line.strip()), least=2)


def _runs(size: int) -> Callable[[str], str | None]:
    def of(text: str) -> str | None:
        words = _WORD.findall(text)
        gap = "" if words and len(words[0]) == 1 and words[0] > "\u3000" else " "
        runs = (gap.join(words[start : start + size]) for start in range(len(words) - size + 1))
        return _often(f"runs of {size} words that stand again", runs, least=2)

    return of


def _stock_phrases(text: str) -> str | None:
    from stoker.data.filters.phrases import STOCK_PHRASES  # loads numba
    from stoker.data.minhash import code_points

    counts = STOCK_PHRASES.counts(code_points(text)).tolist()
    found = (
        phrase.strip() for phrase, count in zip(STOCK_PHRASES.phrases, counts, strict=True) for _ in range(count)
    )
    return _often("stock phrases", found)


_BY_MEASURE: Mapping[str, Callable[[str], str | None]] = {
    "filter.markup_share": lambda text: _often("tags", (one.lower() for one in _TAG.findall(text))),
    "filter.address_share": lambda text: _often("addresses", _ADDRESS.findall(text)),
    "filter.stock_phrase_share": _stock_phrases,
    "filter.long_run_share": lambda text: _often(
        "runs", (match[1] * 3 + "…" for match in _LONG_RUN.finditer(text))
    ),
    "filter.repeated_line_share": _lines,
    "filter.repeated_phrase_share": _runs(10),
    "filter.commonest_phrase_share": _runs(3),
}
