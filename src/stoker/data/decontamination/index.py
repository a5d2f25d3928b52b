"""What is known of evaluation items, arranged so that a document is searched for all of them in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker.data.decontamination.kernels import found_short
from stoker.data.filters.scanning import count_characters
from stoker.data.hash_table import hash_table, numbers_of
from stoker.data.minhash import Hashes, code_points, shingle_hashes, token_hashes

_MOST_ITEMS_OF_A_RUN = 10
"""A run of words in more items than this is a template of the evaluation set."""
_LEAST_TOKENS = {False: 6, True: 10}
"""Items of fewer distinct words (characters) are no evidence and are not looked for."""
_SEED = {False: 3, True: 5}
_LIKENESS = {False: 0.8, True: 0.85}
"""With these, an item that differs by substituted or left-out tokens alone always has a seed in common."""
_MOST_ITEMS_OF_A_SEED = 64


@dataclass(frozen=True, slots=True)
class Contamination:
    """The evaluation item of which a document holds most."""

    item: int
    """Its number in `EvaluationIndex.names`."""
    overlap: float
    """Share of its runs that stand in the document; of a short item, of its tokens in order."""
    tokens: npt.NDArray[np.bool_]
    """Which tokens of the document belong to items, this or another [tokens]."""


class _Runs:
    """Items of one script that are long enough to have runs."""

    def __init__(self, items: Sequence[tuple[int, Hashes]], size: int) -> None:
        own = [np.unique(shingle_hashes(tokens, size)) for _, tokens in items]
        numbers = np.repeat([number for number, _ in items], [len(runs) for runs in own]).astype(np.int32)
        every = np.concatenate([*own, np.empty(0, np.uint64)])
        runs, first, counts = np.unique(every, return_index=True, return_counts=True)
        telling = counts <= _MOST_ITEMS_OF_A_RUN
        self.size, self.items = size, numbers[first[telling]]
        self.table = hash_table(runs[telling])
        self.of_item = dict(zip([number for number, _ in items], [len(runs) for runs in own], strict=True))

    def __len__(self) -> int:
        return len(self.items)


class _Short:
    """Items of one script that are looked for whole."""

    def __init__(self, items: Sequence[tuple[int, Hashes]], seed: int, likeness: float) -> None:
        self.seed, self.likeness = seed, likeness
        self.numbers = np.asarray([number for number, _ in items], np.int32)
        self.starts = np.cumsum([0, *(len(tokens) for _, tokens in items)])
        self.tokens = np.concatenate([*(tokens for _, tokens in items), np.empty(0, np.uint64)])
        seeds = [shingle_hashes(tokens, seed) for _, tokens in items]
        every = np.concatenate([*seeds, np.empty(0, np.uint64)])
        own = np.repeat(np.arange(len(items)), [len(one) for one in seeds]).astype(np.int32)
        offsets = np.concatenate([*(np.arange(len(one)) for one in seeds), np.empty(0, np.int64)]).astype(np.int32)
        order = np.argsort(every, kind="stable")
        runs, first, counts = np.unique(every[order], return_index=True, return_counts=True)
        self.table = hash_table(runs)
        self.first, self.counts = first, np.minimum(counts, _MOST_ITEMS_OF_A_SEED)
        self.own, self.offsets = own[order], offsets[order]

    def __len__(self) -> int:
        return len(self.numbers)


class EvaluationIndex:
    """The items of evaluation sets, by name."""

    def __init__(self, items: Sequence[tuple[str, str]], ngram: int, ngram_characters: int) -> None:
        """`items` are names and texts."""
        self.names = [name for name, _ in items]
        sizes = {False: ngram, True: ngram_characters}
        long: dict[bool, list[tuple[int, Hashes]]] = {False: [], True: []}
        short: dict[bool, list[tuple[int, Hashes]]] = {False: [], True: []}
        for number, (_, text) in enumerate(items):
            tokens, count = token_hashes(text, symbols=False), count_characters(code_points(text))
            unspaced = count.unspaced_letters > count.spaced_words
            if len(tokens) >= sizes[unspaced]:
                long[unspaced].append((number, tokens))
            elif len(np.unique(tokens)) >= _LEAST_TOKENS[unspaced] and count.letters > count.visible // 2:
                short[unspaced].append((number, tokens))
        self.not_looked_for = len(items) - sum(map(len, (*long.values(), *short.values())))
        """Items too short to be evidence, or short and mostly digits and symbols."""
        self._runs = [runs for key in sizes if len(runs := _Runs(long[key], sizes[key]))]
        self._short = [one for key in sizes if len(one := _Short(short[key], _SEED[key], _LIKENESS[key]))]

    def search(self, text: str) -> Contamination | None:
        """The item of which `text` holds most, or None where it holds none."""
        tokens = token_hashes(text, symbols=False)
        marked = np.zeros(len(tokens), np.bool_)
        best: tuple[float, int] | None = None
        for runs in self._runs:
            if len(tokens) < runs.size:
                continue
            places = numbers_of(shingle_hashes(tokens, runs.size), runs.table)
            at = np.flatnonzero(places >= 0)
            for start in at.tolist():
                marked[start : start + runs.size] = True
            numbers, counts = np.unique(runs.items[np.unique(places[at])], return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                best = max(best or (0.0, -1), (count / runs.of_item[number], -number))
        for short in self._short:
            if len(tokens) < short.seed:
                continue
            seeds = numbers_of(shingle_hashes(tokens, short.seed), short.table)
            for own, likeness in found_short(tokens, seeds, short, marked):
                best = max(best or (0.0, -1), (likeness, -int(short.numbers[own])))
        return None if best is None else Contamination(-best[1], best[0], marked)
