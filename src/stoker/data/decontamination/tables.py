"""What is known of evaluation items, as plain arrays that can lie in a file and be shared by processes.

Of each script (words, or characters of scripts without spaces) there may be three parts:

runs     every run of `ngram` tokens of long items, sorted, by which one copied run is found;
near     the same items in pieces of at most 128 tokens, by seeds, by which changed copies are found;
short    items that are too short for a run, by seeds of fewer tokens.

Memory is about 16 bytes for each token of long items in runs, 8 for the tokens of pieces, and 44 for each seed; of
a piece of more than 40 tokens about one seed in five is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.decontamination.kernels import bucket_starts, thinned
from stoker.data.filters.scanning import count_characters
from stoker.data.minhash import Hashes, code_points, shingle_hashes, token_hashes

Tables = dict[str, npt.NDArray[Any]]
Item = tuple[int, Hashes]
SCRIPTS = ("words", "characters")
_MOST_ITEMS_OF_A_RUN = 10
"""A run of words in more items than this is a template of the evaluation set."""
_LEAST_TOKENS = {"words": 6, "characters": 10}
"""Items of fewer distinct words (characters) are no evidence and are not looked for."""
SHORT_SEED = {"words": 3, "characters": 5}
NEAR_SEED = {"words": 5, "characters": 6}
"""Of an item in which every tenth token was changed, four and more in ten of these are left."""
MOST_OF_A_SEED = {"short": 64, "near": 10}
"""Occurrences of a seed that are looked at; a commoner seed of a long item is passed over, others tell."""
_PIECE = 128
_ALL_SEEDS = 40
"""Tokens of a piece up to which all of its seeds are kept."""
_WINDOW = 9
"""Of so many neighbouring seeds of a longer piece at least one is kept: any 13 words (14 characters) have one."""


def tables_of(items: Iterable[tuple[str, str]], ngram: int, ngram_characters: int) -> Tables:
    """The tables of items, given by name and text."""
    sizes = {"words": ngram, "characters": ngram_characters}
    long: dict[str, list[Item]] = {script: [] for script in SCRIPTS}
    short: dict[str, list[Item]] = {script: [] for script in SCRIPTS}
    names: list[bytes] = []
    for number, (name, text) in enumerate(items):
        names.append(name.encode("utf-8", "surrogatepass"))
        tokens, count = token_hashes(text, symbols=False), count_characters(code_points(text))
        script = "characters" if count.unspaced_letters > count.spaced_words else "words"
        if len(tokens) >= sizes[script]:
            long[script].append((number, tokens))
        elif len(np.unique(tokens)) >= _LEAST_TOKENS[script] and count.letters > count.visible // 2:
            short[script].append((number, tokens))
    looked_for = sum(map(len, (*long.values(), *short.values())))
    found: Tables = {
        "names": np.frombuffer(b"".join(names), np.uint8),
        "name_ends": np.cumsum([len(name) for name in names], dtype=np.int64),
        "sizes": np.asarray([ngram, ngram_characters, len(names) - looked_for], np.int64),
        "runs_of_item": np.zeros(len(names), np.int32),
    }
    for script in SCRIPTS:
        if long[script]:
            found |= _runs(script, long[script], sizes[script], found["runs_of_item"])
            found |= _seeds(f"{script}.near", _pieces(long[script]), NEAR_SEED[script], "near", _WINDOW)
        if short[script]:
            found |= _seeds(f"{script}.short", short[script], SHORT_SEED[script], "short", 1)
    return found


def _runs(script: str, items: Sequence[Item], size: int, runs_of_item: npt.NDArray[np.int32]) -> Tables:
    """Runs that are no templates, and an item of each; `runs_of_item` is filled in."""
    own = [np.unique(shingle_hashes(tokens, size)) for _, tokens in items]
    lengths = np.asarray([len(runs) for runs in own])
    which = np.asarray([number for number, _ in items], np.int32)
    runs_of_item[which] = lengths
    runs, first, counts = np.unique(np.concatenate(own), return_index=True, return_counts=True)
    telling = counts <= _MOST_ITEMS_OF_A_RUN
    keys = runs[telling]
    return {
        f"{script}.runs": keys,
        f"{script}.runs.buckets": bucket_starts(keys),
        f"{script}.runs.items": np.repeat(which, lengths)[first[telling]],
    }


def _pieces(items: Iterable[Item]) -> list[Item]:
    """Items in pieces of equal length, `_PIECE` tokens at most."""
    return [
        (number, piece) for number, tokens in items for piece in np.array_split(tokens, -(-len(tokens) // _PIECE))
    ]


def _seeds(name: str, items: Sequence[Item], seed: int, part: str, window: int) -> Tables:
    """Tokens of items, and where in them each seed occurs: `own` and `offsets` in the order of seeds."""
    hashes, offsets = [], []
    for _, tokens in items:
        every = shingle_hashes(tokens, seed)
        kept = thinned(every, window if len(tokens) > _ALL_SEEDS else 1)
        hashes.append(every[kept])
        offsets.append(kept)
    own = np.repeat(np.arange(len(items), dtype=np.int32), [len(one) for one in hashes])
    together = np.concatenate(hashes)
    order = np.argsort(together, kind="stable")
    keys, first, counts = np.unique(together[order], return_index=True, return_counts=True)
    most = MOST_OF_A_SEED[part]
    looked_at = np.where(counts > most, 0, counts) if part == "near" else np.minimum(counts, most)
    return {
        f"{name}.tokens": np.concatenate([tokens for _, tokens in items]),
        f"{name}.starts": np.cumsum([0, *(len(tokens) for _, tokens in items)]),
        f"{name}.items": np.asarray([number for number, _ in items], np.int32),
        f"{name}.seeds": keys,
        f"{name}.seeds.buckets": bucket_starts(keys),
        f"{name}.first": first.astype(np.int64),
        f"{name}.counts": looked_at.astype(np.int64),
        f"{name}.own": own[order],
        f"{name}.offsets": np.concatenate(offsets).astype(np.int32)[order],
    }
