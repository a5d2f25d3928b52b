"""Shingles and MinHash signatures of text: the arithmetic under near-duplicate removal.

A text is first brought to a normal form that ignores case, width and compatibility variants (each character's
NFKC case fold), spacing, invisible characters and punctuation. It is then a row of tokens: a word (letters,
marks, digits, connectors) in scripts that put spaces between words; one character in scripts that do not
(Han, kana, Thai, Lao, Khmer, Myanmar …); one symbol (`+ = < $ * / -` …), which is what distinguishes formulas
and code. A shingle is `size` neighbouring tokens, known by a 64-bit hash; a text of fewer tokens is one
shingle. Mixed text needs no language: each run is cut by its own script.

The kernels are compiled by numba on first use and cached on disk.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.counter_random import draw_u64, key_of
from stoker.data.kernels import compiled

Hashes = npt.NDArray[np.uint64]
Signature = npt.NDArray[np.uint32]

EMPTY = np.uint32(0xFFFFFFFF)
"""Every entry of the signature of a text without tokens; such a text resembles nothing."""

_BREAK, _WORD, _ALONE, _SKIP = 0, 1, 2, 3
_CODE_POINTS = 0x110000
_LAST_WITH_CASE_OR_VARIANTS = 0x20000
_EXPANDED = np.uint32(1 << 31)
_SYMBOLS_AMONG_PUNCTUATION = frozenset("-*/%&@#\\")
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK and Kangxi radicals
    (0x3005, 0x3007),  # 々〆〇
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3040, 0x30FF),  # kana
    (0x3105, 0x312F),  # Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),  # Myanmar Extended
    (0xF900, 0xFAFF),
    (0x16FE0, 0x18CFF),  # Tangut, Khitan
    (0x1AFF0, 0x1B2FF),  # kana supplements, Nushu
    (0x20000, 0x3FFFF),  # Han extensions
)


_Tables = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint32]]


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    """(fold, kind, starts, expansions): what each code point becomes in the normal form, and what that is.

    `fold[c]` is one code point, or `_EXPANDED + k` for the code points `expansions[starts[k]:starts[k + 1]]`.
    """
    fold = np.arange(_CODE_POINTS, dtype=np.uint32)
    kind = np.zeros(_CODE_POINTS, dtype=np.uint8)
    starts, expansions = [0], list[int]()
    with_variants = [*range(_LAST_WITH_CASE_OR_VARIANTS), *range(0x2F800, 0x2FA20)]
    for code_point in with_variants:
        character = chr(code_point)
        kind[code_point] = _kind_of(character)
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())
        if folded == character:
            continue
        if len(folded) == 1:
            fold[code_point] = ord(folded)
        else:
            fold[code_point] = _EXPANDED + np.uint32(len(starts) - 1)
            expansions.extend(map(ord, folded))
            starts.append(len(expansions))
    kind[0xE0000:0xE1000] = _SKIP
    for first, last in _UNSPACED:
        block = kind[first : last + 1]
        block[:] = np.where((block == _WORD) | (first >= 0x20000), _ALONE, block)
    return fold, kind, np.asarray(starts, np.int64), np.asarray(expansions, np.uint32)


@lru_cache(maxsize=1)
def _kinds_without_symbols() -> npt.NDArray[np.uint8]:
    kind = _tables()[1].copy()
    for code_point in np.flatnonzero(kind[:_LAST_WITH_CASE_OR_VARIANTS] == _ALONE):
        if unicodedata.category(chr(code_point))[0] in "PS":
            kind[code_point] = _BREAK
    return kind


def _kind_of(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] in "LMN" or category in ("Pc", "Co"):
        return _WORD
    if category[0] == "S" or character in _SYMBOLS_AMONG_PUNCTUATION:
        return _ALONE
    return _SKIP if category == "Cf" else _BREAK


@compiled
def _mixed(value: Any) -> Any:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _token_hashes(code_points: Any, fold: Any, kind: Any, starts: Any, expansions: Any) -> Any:
    tokens = np.empty(code_points.size + 64, np.uint64)
    count = 0
    word = np.uint64(0)
    in_word = False
    i, pending, pending_end = 0, 0, 0
    while i < code_points.size or pending < pending_end:
        if pending < pending_end:
            character = expansions[pending]
            pending += 1
        else:
            character = fold[code_points[i]]
            i += 1
            if character >= _EXPANDED:
                pending = starts[character - _EXPANDED]
                pending_end = starts[character - _EXPANDED + 1]
                continue
        what = kind[character]
        if what == _WORD:
            if not in_word:
                word = np.uint64(0xCBF29CE484222325)
                in_word = True
            word = (word ^ np.uint64(character)) * np.uint64(0x100000001B3)
            continue
        if what == _SKIP:
            continue
        if count + 2 > tokens.size:
            grown = np.empty(2 * tokens.size, np.uint64)
            grown[:count] = tokens[:count]
            tokens = grown
        if in_word:
            tokens[count] = _mixed(word)
            count += 1
            in_word = False
        if what == _ALONE:
            tokens[count] = _mixed(np.uint64(character) + np.uint64(0x9E3779B97F4A7C15))
            count += 1
    if in_word:
        tokens[count] = _mixed(word)
        count += 1
    return tokens[:count]


@compiled
def _shingle_hashes(tokens: Any, size: int) -> Any:
    if tokens.size == 0:
        return np.empty(0, np.uint64)
    base = np.uint64(0xD1342543DE82EF95)
    leaving = np.uint64(1)
    for _ in range(size):
        leaving *= base
    shingles = np.empty(max(1, tokens.size - size + 1), np.uint64)
    rolling = np.uint64(0)
    for i in range(tokens.size):
        rolling = rolling * base + tokens[i]
        if i >= size:
            rolling -= tokens[i - size] * leaving
        if i >= size - 1:
            shingles[i - size + 1] = _mixed(rolling)
    if tokens.size < size:
        shingles[0] = _mixed(rolling)
    return shingles


@compiled
def _minima(shingles: Any, multipliers: Any, offsets: Any) -> Any:
    minima = np.full(multipliers.size, EMPTY, np.uint32)
    for i in range(shingles.size):
        low = np.uint32(shingles[i])
        high = np.uint32(shingles[i] >> np.uint64(32))
        for j in range(multipliers.size):
            value = np.uint32(low * multipliers[j] + high * offsets[j])
            minima[j] = min(minima[j], value)
    return minima


@compiled
def _common(left: Any, right: Any) -> int:
    i, j, common = 0, 0, 0
    while i < left.size and j < right.size:
        if left[i] < right[j]:
            i += 1
        elif left[i] > right[j]:
            j += 1
        else:
            common += 1
            i += 1
            j += 1
    return common


@compiled
def _band_keys(signatures: Any, first: int, last: int) -> Any:
    keys = np.empty(signatures.shape[0], np.uint64)
    for i in range(signatures.shape[0]):
        key = np.uint64(first)
        for j in range(first, last):
            key = _mixed((key + np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(signatures[i, j]))
        keys[i] = key
    return keys


@compiled
def _proposed(index: int, links: Any, gone: Any, signatures: Any, stamps: Any, least_agreeing: int) -> Any:
    found = np.empty(16, np.int64)
    agreements = np.empty(16, np.int64)
    count = 0
    for band in range(links.shape[1]):
        here = index
        while True:
            there = links[here, band]
            while there >= 0 and gone[there]:
                there = links[there, band]
            links[here, band] = there  # what is gone stays gone: the next walk skips it at once
            if there < 0:
                break
            here = there
            if stamps[here] == index:
                continue
            stamps[here] = index
            agreeing = 0
            for j in range(signatures.shape[1]):
                agreeing += signatures[index, j] == signatures[here, j]
            if agreeing < least_agreeing:
                continue
            if count == found.size:
                found = np.concatenate((found, np.empty(count, np.int64)))
                agreements = np.concatenate((agreements, np.empty(count, np.int64)))
            found[count] = here
            agreements[count] = agreeing
            count += 1
    return found[:count], agreements[:count]


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """The code points of `text`: uint32 of shape [characters]."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def folded(text: str) -> npt.NDArray[np.uint32]:
    """Code points of `text`, each by itself brought to its normal form where that is a single character."""
    own = code_points(text)
    normal = _tables()[0][own]
    return np.where(normal < _EXPANDED, normal, own)


def token_hashes(text: str, symbols: bool = True) -> Hashes:
    """64-bit hashes of the tokens of `text` in its normal form, in order; without symbols if so wished."""
    fold, kind, starts, expansions = _tables()
    hashes: Hashes = _token_hashes(
        code_points(text), fold, kind if symbols else _kinds_without_symbols(), starts, expansions
    )
    return hashes


def shingle_hashes(tokens: Hashes, size: int) -> Hashes:
    """64-bit hashes of the runs of `size` neighbouring tokens, in order, repeated ones included.

    Fewer tokens than `size` make one shingle, no tokens none.
    """
    hashes: Hashes = _shingle_hashes(tokens, size)
    return hashes


def shingle_set(text: str, size: int) -> Hashes:
    """The distinct shingles of `text`, as sorted 64-bit hashes."""
    return np.unique(shingle_hashes(token_hashes(text), size))


def jaccard(left: Hashes, right: Hashes) -> float:
    """Size of the intersection of two shingle sets over the size of their union; 0 when both are empty."""
    common = _common(left, right)
    union = len(left) + len(right) - common
    return common / union if union else 0.0


@lru_cache(maxsize=8)
def _permutations(count: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    draws = draw_u64(key_of(0, "minhash"), np.arange(2 * count, dtype=np.uint64)).astype(np.uint32) | np.uint32(1)
    return draws[:count].copy(), draws[count:].copy()


def signature(text: str, size: int, permutations: int) -> Signature:
    """MinHash signature of the shingles of `text`: uint32 of shape [permutations].

    Two signatures agree in an entry with a probability equal to the Jaccard similarity of the shingle sets
    (Broder 1997). A text without tokens has `EMPTY` everywhere.
    """
    minima: Signature = _minima(shingle_hashes(token_hashes(text), size), *_permutations(permutations))
    return minima


def band_keys(signatures: npt.NDArray[np.uint32], first: int, last: int) -> Hashes:
    """One 64-bit key per row for the entries `first` to `last` (exclusive): equal where those are equal."""
    keys: Hashes = _band_keys(signatures, first, last)
    return keys


def proposed(
    index: int,
    links: npt.NDArray[np.int64],
    gone: npt.NDArray[np.bool_],
    signatures: npt.NDArray[np.uint32],
    stamps: npt.NDArray[np.int64],
    least_agreeing: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Earlier documents that share a band with document `index` and are not `gone`: (documents, agreeing entries).

    `links[i, band]` is the nearest earlier document with the same band, or -1 [documents, bands]; links over
    documents that are gone are shortened in place. Proposals with fewer than `least_agreeing` equal entries
    are left out. `stamps` [documents] is working memory, to be filled with -1 before the first call.
    """
    found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = _proposed(
        index, links, gone, signatures, stamps, least_agreeing
    )
    return found
