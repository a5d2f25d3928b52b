"""Lines that recur on many pages of one host: menus, bars, notices and footers, in whatever words.

One page cannot tell a menu's words from its own. On many pages of a host the same lines stand in the same company:
a line is furniture where it and the line behind it (or the page's end) recur together, or where it recurs by itself
and is a sentence, or says what furniture may say. A heading such as `Examples` recurs too, but what follows it
differs. Lines that
differ in digits alone, such as `3 comments`, are the same where neither of two is often without the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from stoker.data.content import content_of
from stoker.data.deduplication.duplicates import Integers
from stoker.data.deduplication.edits import Edits, edits_of
from stoker.data.deduplication.keyed_file import KeyedFile
from stoker.data.deduplication.passages import passages
from stoker.data.kernels import compiled
from stoker.data.line_cleaning.cleaning import free_lines
from stoker.data.minhash import Hashes, Utf8, mixed

HOST_FURNITURE = "host_furniture"
"""The reason under which characters that are cut stand in the ledger."""
LEAST_PAGES = 5
"""A line must stand on so many pages of its host …"""
SHARE = 0.1
"""… and on this share of them …"""
COMPANY = 0.5
"""… and be in the same company on this share of those."""
_SENTENCE_ENDS = (".", "。", "．", "!", "！", "?", "？")
_DIGIT = re.compile(r"\d")
_COLONS = (":", "：")
_BULLETS = "-*•·–—+>»← \t\u3000"
_LEAST_LETTERS = 4
"""UTF-8 bytes beside digits: with fewer it may be a number of anything."""
_LEAST_SENTENCE = 24
"""UTF-8 bytes from which a line may be a sentence."""
_MARKUP = frozenset(".#@:\\{}<>$%&+;=~^_`'\"/|([")
"""Signs that open lines of markup, of code and of quotations."""
_KEYWORDS_WORDS = (
    "import from def class return include using package for if else elif while try except finally print public "
    "private static const let var func function fn int void char float double struct end begin sub dim do then "
    "done echo sudo select insert update create drop >>> ... local export pass break continue"
)
_KEYWORDS = frozenset(_KEYWORDS_WORDS.split())
"""First words of lines of programs that have no sign of code in them."""


def host_furniture(documents: Integers, hosts: Hashes, text_of: Callable[[int], Utf8], folder: Path) -> Edits:
    """Cut out the lines that are furniture of the host of each document.

    `hosts` has a key of the host of each of `documents`: uint64 [documents]. Of hosts of few pages, and from code,
    tables and verse, nothing is cut. Memory is for a number of each document, 24 bytes for each line that is cut,
    and one part of the lines' keys, which lie in `folder` meanwhile.
    """
    _, host, pages = np.unique(hosts, return_inverse=True, return_counts=True)
    least = np.maximum(LEAST_PAGES, np.ceil(SHARE * pages).astype(np.int64))[host]
    enough = np.flatnonzero(pages[host] >= LEAST_PAGES)
    documents, hosts, least = documents[enough], hosts[enough], least[enough]
    keyed, ends = KeyedFile(folder), np.zeros(len(documents), np.int64)
    total = 0
    for place, document in enumerate(documents.tolist()):
        keys, _ = _lines(text_of(document))
        alone, together = _keys_of_company(keys, hosts[place])
        numbers = 2 * np.arange(total, total + len(keys))
        keyed.add(np.concatenate([alone, together]), np.concatenate([numbers, numbers + 1]))
        total += len(keys)
        ends[place] = total
    furniture = _furniture(dict(_recurring(keyed, ends, least)), _Pages(documents, hosts, ends, text_of))
    lines = np.unique(np.concatenate([np.empty(0, np.int64), *furniture]))
    return _cut(lines, documents, ends, text_of)


class _Pages:
    """Lines by their numbers among those of all documents, fetched from the text when they are asked for."""

    def __init__(self, documents: Integers, hosts: Hashes, ends: Integers, text_of: Callable[[int], Utf8]) -> None:
        self._ends = ends
        self._fetched = lru_cache(maxsize=16)(
            lambda place: _texts_and_keys(text_of(int(documents[place])), int(hosts[place]))
        )

    def line(self, number: int) -> tuple[str, str | None]:
        """A line and the one behind it; None at the end of the page."""
        (lines, _), at = self._of(number)
        return lines[at], lines[at + 1] if at + 1 < len(lines) else None

    def key(self, number: int) -> int:
        """The key of a line by itself."""
        (_, keys), at = self._of(number)
        return int(keys[at])

    def _of(self, number: int) -> tuple[tuple[list[str], Hashes], int]:
        place = int(np.searchsorted(self._ends, number, side="right"))
        return self._fetched(place), number - (int(self._ends[place - 1]) if place else 0)


def _lines(text: Utf8) -> tuple[Hashes, Integers]:
    """(key of each line that has a token, its bytes with the line ends behind it)."""
    return passages(text, paragraphs=False, characters=0, digits=False)


def _texts_and_keys(text: Utf8, host: int) -> tuple[list[str], Hashes]:
    keys, spans = _lines(text)
    alone, _ = _keys_of_company(keys, np.uint64(host))
    return [text[start:stop].tobytes().decode().strip() for start, stop in spans.tolist()], alone


@compiled
def _keys_of_company(keys: Any, host: Any) -> Any:
    """Of each line of a page of `host`: its key by itself, and with the line behind it or the page's end."""
    alone, together = np.empty_like(keys), np.empty_like(keys)
    for i in range(keys.size):
        alone[i] = mixed(keys[i] ^ mixed(host))
        behind = keys[i + 1] if i + 1 < keys.size else np.uint64(0)
        together[i] = mixed(alone[i] * np.uint64(0x9E3779B97F4A7C15) + behind)
    return alone, together


@dataclass(frozen=True, slots=True)
class _Recurring:
    """A line, by itself or with the one behind it, that stands on enough pages of its host."""

    pages: int
    values: Integers
    """Twice the number of each such line; and 1 for one with the line behind it."""


def _recurring(keyed: KeyedFile, ends: Integers, least: Integers) -> Iterator[tuple[int, _Recurring]]:
    """What recurs, by its key."""
    for keys, values in keyed.parts():
        if not len(keys):
            continue
        document = np.searchsorted(ends, values >> 1, side="right")
        first = np.append(True, keys[1:] != keys[:-1])
        starts = np.flatnonzero(first)
        fresh = first | np.append(True, document[1:] != document[:-1])
        pages = np.add.reduceat(fresh.astype(np.int64), starts)
        stops = np.append(starts[1:], len(keys))
        for at in np.flatnonzero(pages >= least[document[starts]]).tolist():
            yield int(keys[starts[at]]), _Recurring(int(pages[at]), values[starts[at] : stops[at]].copy())


def _furniture(found: Mapping[int, _Recurring], pages: _Pages) -> Iterator[Integers]:
    """Numbers of lines that are furniture, some of them more than once."""
    for one in found.values():
        number, with_behind = divmod(int(one.values[0]), 2)
        line, behind = pages.line(number)
        if not _can_be_furniture(line):
            continue
        differs = _DIGIT.search(line) is not None
        if not with_behind:
            if _is_sentence(line) and not differs:
                yield one.values >> 1
        elif behind is None:
            if not differs and one.pages >= COMPANY * found[pages.key(number)].pages:
                yield one.values >> 1
        elif _can_be_furniture(behind) and not line.endswith(_COLONS):
            shares = [one.pages / found[pages.key(number + step)].pages for step in (0, 1)]
            differs = differs or _DIGIT.search(behind) is not None
            for step, share in enumerate(shares):
                if min(shares) >= COMPANY or (share >= COMPANY and not differs):
                    yield (one.values >> 1) + step


def _can_be_furniture(line: str) -> bool:
    """Whether a line is neither markup nor code, and has letters, which are some where it has digits."""
    plain = line.lstrip(_BULLETS)
    if not plain or plain[0] in _MARKUP:
        return False
    letters = "".join(filter(str.isalpha, plain))
    if not letters or (len(letters.encode()) < _LEAST_LETTERS and _DIGIT.search(plain) is not None):
        return False
    return plain.split(maxsplit=1)[0].lower() not in _KEYWORDS and content_of(plain + "\n").code == 0


def _is_sentence(line: str) -> bool:
    return line.endswith(_SENTENCE_ENDS) and len(line.encode()) >= _LEAST_SENTENCE


def _cut(lines: Integers, documents: Integers, ends: Integers, text_of: Callable[[int], Utf8]) -> Edits:
    """Edits that cut lines, given by their numbers among those of all documents, where these are free to go."""
    owner = np.searchsorted(ends, lines, side="right")
    places, begins = np.unique(owner, return_index=True)
    stops = np.append(begins[1:], len(lines))
    rows: list[tuple[int, int, int]] = []
    for place, begin, stop in zip(places.tolist(), begins.tolist(), stops.tolist()[: len(places)], strict=True):
        text = text_of(int(documents[place]))
        _, spans = _lines(text)
        free = _free_bytes(text)
        first = int(ends[place - 1]) if place else 0
        chosen = spans[lines[begin:stop] - first].tolist()
        rows += [(int(documents[place]), *span) for span in chosen if span[0] in free]
    cut = np.asarray(rows, np.int64).reshape(-1, 3)
    return edits_of(HOST_FURNITURE, cut[:, 0], cut[:, 1], cut[:, 2], text_of)


def _free_bytes(text: Utf8) -> frozenset[int]:
    """First bytes of the lines that are not indented as code is, nor between fences, nor rows of a table."""
    lines = text.tobytes().decode().split("\n")
    starts = np.cumsum([0, *(len(line.encode()) + 1 for line in lines)]).tolist()
    return frozenset(starts[number] for number in free_lines(lines))
