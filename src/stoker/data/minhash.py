"""Tokens, shingles and MinHash signatures of text: the arithmetic under near-duplicate removal.

A text in its normal form (`normal_form.py`) is a row of tokens: a word (letters, marks, digits, connectors) in
scripts that put spaces between words; one character in scripts that do not (Han, kana, Thai, Lao, Khmer,
Myanmar …); one symbol (`+ = < $ * / -` …), which is what distinguishes formulas and code. A shingle is `size`
neighbouring tokens, known by a 64-bit hash; a text of fewer tokens is one shingle. Mixed text needs no language:
each run is cut by its own script.

Texts are read as UTF-8, many in one call. The kernels are compiled by numba on first use and cached on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.normal_form import ALONE, EXPANDED, KIND_SHIFT, SKIP, WORD, NormalForm, normal_form
from stoker.data.normal_form import folded as _folded

Hashes = npt.NDArray[np.uint64]
Signature = npt.NDArray[np.uint32]
Signatures = npt.NDArray[np.uint32]
"""MinHash signatures by row: [documents, permutations]."""
Utf8 = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

EMPTY = np.uint32(0xFFFFFFFF)
"""Every entry of the signature of a text without tokens; such a text resembles nothing."""
SIGNING = 2
"""Version of what a signature is: raised when the same text and settings give another one."""
NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)
"""A bin into which nothing fell."""
TURNS = 64
"""Turns of throwing, the same for all texts, before what is still empty is filled bin by bin."""


@compiled
def mixed(value: Any) -> Any:
    """The finalizer of SplitMix64 (Steele, Lea & Flood 2014): a permutation of 64-bit numbers that scatters."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _decoded(text: Any, i: int) -> Any:
    """The code point of several bytes that begins at `text[i]`, and where the next one begins."""
    lead = np.uint32(text[i])
    second = np.uint32(text[i + 1]) & np.uint32(0x3F)
    if lead < 0xE0:
        return (lead & np.uint32(0x1F)) << np.uint32(6) | second, i + 2
    third = np.uint32(text[i + 2]) & np.uint32(0x3F)
    if lead < 0xF0:
        return (lead & np.uint32(0x0F)) << np.uint32(12) | second << np.uint32(6) | third, i + 3
    fourth = np.uint32(text[i + 3]) & np.uint32(0x3F)
    point = (lead & np.uint32(0x07)) << np.uint32(18) | second << np.uint32(12) | third << np.uint32(6) | fourth
    return point, i + 4


@compiled
def tokenize(text: Any, entries: Any, starts: Any, expansions: Any, tokens: Any) -> int:
    """Write the token hashes of UTF-8 `text` into `tokens`; how many, or -1 where `tokens` is too short."""
    count = 0
    word = np.uint64(0)
    i, pending, pending_end = 0, 0, 0
    length, room = text.size, tokens.size - 2
    while i < length or pending < pending_end:
        if pending < pending_end:
            entry = expansions[pending]
            pending += 1
        elif text[i] < 0x80:
            entry = entries[text[i]]
            i += 1
        else:
            point, i = _decoded(text, i)
            entry = entries[point]
            if entry >= EXPANDED:
                pending = starts[entry - EXPANDED]
                pending_end = starts[entry - EXPANDED + np.uint32(1)]
                continue
        kind = entry >> np.uint32(KIND_SHIFT)
        if kind == WORD:
            word = (word ^ np.uint64(entry)) * np.uint64(0x9E3779B97F4A7C15)
            continue
        if kind == SKIP:
            continue
        if count > room:
            return -1
        if word:
            tokens[count] = mixed(word)
            count += 1
            word = np.uint64(0)
        if kind == ALONE:
            tokens[count] = mixed(np.uint64(entry))
            count += 1
    if word:
        if count > room:
            return -1
        tokens[count] = mixed(word)
        count += 1
    return count


@compiled
def shingled(tokens: Any, count: int, size: int, shingles: Any) -> int:
    """Write the hashes of the runs of `size` among the first `count` tokens into `shingles`; how many."""
    if count == 0:
        return 0
    base = np.uint64(0xD1342543DE82EF95)
    leaving = np.uint64(1)
    for _ in range(size):
        leaving *= base
    rolling = np.uint64(0)
    for i in range(min(size, count)):
        rolling = rolling * base + tokens[i]
    shingles[0] = mixed(rolling)
    for i in range(size, count):
        rolling = rolling * base + tokens[i] - tokens[i - size] * leaving
        shingles[i - size + 1] = mixed(rolling)
    return max(1, count - size + 1)


@compiled
def _sketch(shingles: Any, count: int, bins: Any, row: Any) -> None:
    """Fill one signature.

    Every turn throws each shingle into one of the bins; a bin keeps the least hash of the first turn in which
    something fell into it (the turn stands above the hash in its 64 bits). Long texts fill all bins in the first
    turn, so that each shingle is hashed once; what is still empty after some turns is filled bin by bin.
    """
    number = np.uint64(bins.size)
    bins[:] = NOTHING
    left = bins.size if count else 0
    turn: Any = np.uint64(0)
    while left > 0 and turn < np.uint64(TURNS):
        salt = turn * np.uint64(0x9E3779B97F4A7C15)
        for i in range(count):
            value = mixed(shingles[i] + salt)
            drawn = np.int64(((value >> np.uint64(32)) * number) >> np.uint64(32))
            bins[drawn] = min(bins[drawn], turn << np.uint64(32) | value & np.uint64(0xFFFFFFFF))
        turn += np.uint64(1)
        left = np.count_nonzero(bins == NOTHING)
    for place in range(bins.size):
        if bins[place] == NOTHING and count:
            salt = np.uint64(TURNS + place) * np.uint64(0x9E3779B97F4A7C15)
            for i in range(count):
                bins[place] = min(bins[place], mixed(shingles[i] + salt) & np.uint64(0xFFFFFFFF))
        row[place] = np.uint32(bins[place] & np.uint64(0xFFFFFFFF))


@compiled
def _signatures(
    text: Any, offsets: Any, size: int, entries: Any, starts: Any, expansions: Any, signatures: Any
) -> None:
    tokens = np.empty(1 << 12, np.uint64)
    shingles = np.empty(1 << 12, np.uint64)
    bins = np.empty(signatures.shape[1], np.uint64)
    for document in range(offsets.size - 1):
        own = text[offsets[document] : offsets[document + 1]]
        count = tokenize(own, entries, starts, expansions, tokens)
        while count < 0:
            tokens = np.empty(tokens.size + own.size, np.uint64)
            shingles = np.empty(tokens.size, np.uint64)
            count = tokenize(own, entries, starts, expansions, tokens)
        count = shingled(tokens, count, size, shingles)
        _sketch(shingles, count, bins, signatures[document])


@compiled
def _token_hashes(text: Any, entries: Any, starts: Any, expansions: Any) -> Any:
    count = -1
    room = text.size // 3 + 16
    while count < 0:
        tokens = np.empty(room, np.uint64)
        count = tokenize(text, entries, starts, expansions, tokens)
        room *= 2
    return tokens[:count]


@compiled
def _shingle_hashes(tokens: Any, size: int) -> Any:
    shingles = np.empty(tokens.size, np.uint64)
    return shingles[: shingled(tokens, tokens.size, size, shingles)]


@compiled
def _distinct(ordered: Any) -> Any:
    count = min(1, ordered.size)
    for i in range(1, ordered.size):
        if ordered[i] != ordered[i - 1]:
            ordered[count] = ordered[i]
            count += 1
    return ordered[:count]


@compiled
def _common(left: Any, right: Any) -> int:
    i, j, common = 0, 0, 0
    while i < left.size and j < right.size:
        first, second = left[i], right[j]
        common += first == second
        i += first <= second
        j += second <= first
    return common


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """The code points of `text`: uint32 of shape [characters]."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def folded(text: str) -> npt.NDArray[np.uint32]:
    """Code points of `text`, each by itself brought to its normal form where that is a single character."""
    return _folded(code_points(text))


def utf8(text: str) -> Utf8:
    """`text` in UTF-8: uint8 of shape [bytes]."""
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def token_hashes(text: str, symbols: bool = True) -> Hashes:
    """64-bit hashes of the tokens of `text` in its normal form, in order; without symbols if so wished.

    Traditional and simplified characters are different tokens here.
    """
    form = normal_form(symbols)
    hashes: Hashes = _token_hashes(utf8(text), form.entries, form.starts, form.expansions)
    return hashes


def shingle_hashes(tokens: Hashes, size: int) -> Hashes:
    """64-bit hashes of the runs of `size` neighbouring tokens, in order, repeated ones included.

    Fewer tokens than `size` make one shingle, no tokens none.
    """
    hashes: Hashes = _shingle_hashes(tokens, size)
    return hashes


def shingle_set(text: str | Utf8, size: int) -> Hashes:
    """The distinct shingles of `text` (or of its UTF-8), in one Chinese script, as sorted 64-bit hashes."""
    form = _form_of_documents()
    encoded = utf8(text) if isinstance(text, str) else text
    shingles = _shingle_hashes(_token_hashes(encoded, form.entries, form.starts, form.expansions), size)
    shingles.sort()
    distinct: Hashes = _distinct(shingles)
    return distinct


def jaccard(left: Hashes, right: Hashes) -> float:
    """Size of the intersection of two shingle sets over the size of their union; 0 when both are empty."""
    common = _common(left, right)
    union = len(left) + len(right) - common
    return common / union if union else 0.0


def sign_utf8(text: Utf8, offsets: Offsets, size: int, permutations: int) -> Signatures:
    """Signatures of the texts `text[offsets[i]:offsets[i + 1]]`: uint32 of shape [texts, permutations].

    Two signatures agree in an entry with a probability equal to the Jaccard similarity of the shingle sets. The
    entries are drawn without hashing each shingle once for each of them (fast similarity sketching: Dahlgaard,
    Knudsen & Thorup 2017). A text without tokens has `EMPTY` everywhere. `text` is well-formed UTF-8.
    """
    signatures = np.empty((len(offsets) - 1, permutations), np.uint32)
    form = _form_of_documents()
    _signatures(text, offsets, size, form.entries, form.starts, form.expansions, signatures)
    return signatures


def sign(texts: Sequence[str], size: int, permutations: int) -> Signatures:
    """`sign_utf8` of texts in memory."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in encoded], dtype=np.int64)])
    return sign_utf8(np.frombuffer(b"".join(encoded), np.uint8), offsets, size, permutations)


def _form_of_documents() -> NormalForm:
    return normal_form(one_script=True)
