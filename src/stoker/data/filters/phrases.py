"""Lists of phrases, such as those of advertising and page furniture, and a fast count of them in a text.

Phrases are found with one pass of an Aho-Corasick automaton (Aho & Corasick 1975) over the text's folded code
points. In a phrase, a blank stands for any run of characters that are neither letters nor digits, so English
phrases match whole words only; Chinese phrases match anywhere.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import folded

_CODE_POINTS = 0x110000
_GAP = 1
"""Input symbol of a run of characters that are neither letters nor digits; 0 is any character of no phrase."""


class PhraseBook:
    """The phrases of files of a package, to be counted in texts.

    A file has one phrase in each line, in lower case; lines that begin with `#` are comments.
    """

    def __init__(self, package: str, *files: str) -> None:
        self._package, self._files = package, files

    def count(self, code_points: npt.NDArray[np.uint32]) -> tuple[int, int]:
        """(how many phrases stand in a text, how many different ones); the text as code points [characters]."""
        counts = self.counts(code_points)
        return int(counts.sum()), int(np.count_nonzero(counts))

    def counts(self, code_points: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """How often each of `phrases` stands in a text [phrases]."""
        counts: npt.NDArray[np.int64] = _counts(code_points, *self._automaton, len(self.phrases))
        return counts

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        """In the order of the files; English ones have a blank at both ends."""
        return tuple(self._file_of)

    @cached_property
    def file_numbers(self) -> npt.NDArray[np.int64]:
        """In which of the files each of `phrases` stands, the first where in several [phrases]."""
        return np.fromiter(self._file_of.values(), np.int64)

    @cached_property
    def _file_of(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number, file in enumerate(self._files):
            for line in resources.files(self._package).joinpath(file).read_text(encoding="utf-8").splitlines():
                if line and not line.startswith("#"):
                    found.setdefault(f" {line} " if line.isascii() else line, number)
        return found

    @cached_property
    def _automaton(self) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(symbols [code points], moves [states, symbols], phrase_at [states]: the one that ends there, or -1)."""
        symbols = np.where(_is_gap(), np.uint16(_GAP), np.uint16(0))
        alphabet = sorted({character for phrase in self.phrases for character in phrase if character != " "})
        for symbol, character in enumerate(alphabet, start=_GAP + 1):
            symbols[ord(character)] = symbol
        children: list[dict[int, int]] = [{}]
        phrase_at = [-1]
        for number, phrase in enumerate(self.phrases):
            state = 0
            for character in phrase:
                symbol = int(symbols[ord(character)])
                if symbol not in children[state]:
                    children[state][symbol] = len(children)
                    children.append({})
                    phrase_at.append(-1)
                state = children[state][symbol]
            phrase_at[state] = number
        moves = _with_failures(children, phrase_at, len(alphabet) + _GAP + 1)
        return symbols[_folding()], moves, np.asarray(phrase_at, np.int32)


STOCK_PHRASES = PhraseBook(__package__, "stock_phrases.txt")
"""Of advertising and page furniture, English and Chinese."""


@lru_cache(maxsize=1)
def _is_gap() -> npt.NDArray[np.bool_]:
    gaps = np.zeros(_CODE_POINTS, np.bool_)
    gaps[:0x10000] = [not chr(code_point).isalnum() for code_point in range(0x10000)]
    return gaps


@lru_cache(maxsize=1)
def _folding() -> npt.NDArray[np.uint32]:
    """The normal form of each code point by itself: uint32 [code points]."""
    return folded("".join(map(chr, range(_CODE_POINTS))))


def _with_failures(children: list[dict[int, int]], phrase_at: list[int], symbols: int) -> npt.NDArray[np.int32]:
    """Complete the trie: every state has a move on every symbol; endings are inherited along failures."""
    moves = np.zeros((len(children), symbols), dtype=np.int32)
    failure = [0] * len(children)
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        if state:
            moves[state] = moves[failure[state]]
            if phrase_at[state] < 0:
                phrase_at[state] = phrase_at[failure[state]]
        for symbol, child in children[state].items():
            failure[child] = int(moves[state, symbol]) if state else 0
            moves[state, symbol] = child
            waiting.append(child)
    return moves


@compiled
def _counts(code_points: Any, symbols: Any, moves: Any, phrase_at: Any, phrases: int) -> Any:
    counts = np.zeros(phrases, np.int64)
    state = moves[0, _GAP]  # the text begins with a gap
    in_gap = True
    for i in range(code_points.size + 1):
        symbol = symbols[code_points[i]] if i < code_points.size else np.uint16(_GAP)
        if symbol == _GAP and in_gap:
            continue
        in_gap = symbol == _GAP
        state = moves[state, symbol]
        found = phrase_at[state]
        if found >= 0:
            counts[found] += 1
    return counts
