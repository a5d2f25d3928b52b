"""Counting and smoothing: from text to a `CharacterModel`.

All runs of one length are counted at once by sorting their hashes. Shorter runs are counted by how many different
characters stand before them (Kneser & Ney 1995), those at the beginning of a text by how often they do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import code_points
from stoker.data.quality.characters import (
    CHARACTERS,
    START,
    UNIT,
    CharacterModel,
    key_of,
    lengthened,
)
from stoker.data.quality.texts import TextDigest, content_draw, group_of, require_texts

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
_LEAST = 20
_LEAST_LEFT = 1e-9
"""Rounding may leave less than nothing."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is trained."""

    order: int = 5
    """Characters of the longest run."""
    runs: int = 1 << 20
    """Most runs that are kept, 12 bytes each in the file and up to 32 in memory."""
    characters: int = 20_000_000
    """Most characters that are learnt from; training takes about 30 bytes of memory for each."""
    longest_text: int = 1 << 14
    """Characters of one document that are learnt from, so that none outweighs the others."""
    held_out: float = 0.1
    """Share of the documents that is measured and not learnt from, chosen by their content."""


@dataclass(frozen=True, slots=True)
class GroupBits:
    """Bits per character of the held-out documents of one kind and language."""

    group: str
    documents: int
    median: float
    low: float
    """The 5th percentile."""
    high: float
    """The 95th percentile."""


@dataclass(frozen=True)
class TrainedCharacters:
    """A model and what held-out text costs it."""

    model: CharacterModel
    characters: int
    """Learnt from."""
    groups: tuple[GroupBits, ...]


def train_characters(texts: Iterable[str], settings: Settings) -> TrainedCharacters:
    """A model of the characters of `texts`. Raises `BadInput` where there is too little text.

    Of more text than `settings.characters` documents are drawn by their content, so their order has no say.
    """
    learnt, judged = _Drawn(settings.characters), _Drawn(settings.characters // 8)
    for text in texts:
        draw = content_draw(text)
        (judged if draw < settings.held_out else learnt).add(draw, text[: settings.longest_text])
    digest = TextDigest()
    points = [code_points(text) for text in digest.through(learnt.texts())]
    require_texts(len(points), _LEAST, "the text to learn from")
    facts = {"settings": {name: getattr(settings, name) for name in Settings.__slots__}, "text": digest.as_json()}
    model = fitted(points, settings, facts)
    return TrainedCharacters(model, learnt.characters, _bits_by_group(model, judged.texts()))


class _Drawn:
    """The texts with the lowest draws, up to so many characters."""

    def __init__(self, characters: int) -> None:
        self._most, self.characters = characters, 0
        self._heap: list[tuple[float, str]] = []

    def add(self, draw: float, text: str) -> None:
        heapq.heappush(self._heap, (-draw, text))
        self.characters += len(text)
        while self.characters > self._most and len(self._heap) > 1:
            self.characters -= len(heapq.heappop(self._heap)[1])

    def texts(self) -> list[str]:
        return [text for _, text in sorted(self._heap, reverse=True)]


def _bits_by_group(model: CharacterModel, texts: Sequence[str]) -> tuple[GroupBits, ...]:
    bits: dict[str, list[float]] = {}
    for text in texts:
        group = group_of(text)
        bits.setdefault(f"{group.kind} {group.language}", []).append(model.bits_per_character(text))
    found = [
        GroupBits(name, len(own), *(float(np.percentile(own, share)) for share in (50, 5, 95)))
        for name, own in bits.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.documents, one.group)))


@dataclass(frozen=True)
class _Runs:
    """All different runs of one length; arrays [runs] in the order of their keys."""

    keys: Keys
    places: Integers
    """Where the last character of one of each stands."""
    counts: Integers
    """How often each occurs."""


def fitted(texts: list[npt.NDArray[np.uint32]], settings: Settings, facts: dict[str, Any]) -> CharacterModel:
    """The model of some texts, each given by its code points; `facts` become its description."""
    points = np.concatenate([part for text in texts for part in (np.asarray([START], np.uint32), text)])
    depths = _depths(points)
    runs = [_counted(points, depths, size) for size in range(1, settings.order + 1)]
    least = _least_count(runs, settings.runs)
    levels = [_lowest(points, runs, settings.order)]
    for size in range(2, settings.order + 1):
        levels.append(_next_level(points, runs, size, least, levels[-1]))
    kept = [own.counts >= (1 if size == 0 else least) for size, own in enumerate(runs)]
    backing = [*(level.left for level in levels[1:]), np.ones(len(runs[-1].keys))]
    keys = _together([own.keys for own in runs], kept)
    costs = _together([_stored(level.probability) for level in levels], kept)
    backing_off = _together([_stored(left) for left in backing], kept)
    order = np.argsort(keys, kind="stable")
    unknown = -np.log2(float(levels[0].left[0]) / CHARACTERS)
    return CharacterModel(keys[order], costs[order], backing_off[order], float(unknown), settings.order, facts)


def _together(arrays: list[npt.NDArray[Any]], kept: list[npt.NDArray[np.bool_]]) -> npt.NDArray[Any]:
    return np.concatenate([array[chosen] for array, chosen in zip(arrays, kept, strict=True)])


@dataclass(frozen=True)
class _Level:
    """The runs of one length."""

    probability: Floats
    """Of the last character behind the others [runs]."""
    left: Floats
    """Of each run that is one character shorter: the share of what follows it that is left to shorter runs."""


def _lowest(points: npt.NDArray[np.uint32], runs: list[_Runs], order: int) -> _Level:
    """Single characters, all of them kept; what is discounted is divided among all code points."""
    own = runs[0]
    weights = own.counts if order == 1 else _continuations(points, runs, 1)
    weights = np.where(points[own.places] == START, 0, weights)
    taken = np.maximum(weights - _discounts(weights), 0.0) / weights.sum()
    left = 1 - taken.sum()
    return _Level(taken + left / CHARACTERS, np.asarray([left]))


def _next_level(points: npt.NDArray[np.uint32], runs: list[_Runs], size: int, least: int, lower: _Level) -> _Level:
    """The runs of `size` characters; those that occur less than `least` times leave their mass to shorter ones."""
    own, shorter = runs[size - 1], runs[size - 2]
    weights = own.counts if size == len(runs) else _continuations(points, runs, size)
    taken = np.where(own.counts >= least, np.maximum(weights - _discounts(weights), 0.0), 0.0)
    context = np.searchsorted(shorter.keys, _keys(points, own.places - 1, size - 1))
    totals = np.maximum(np.bincount(context, weights, len(shorter.keys)), 1)
    left = np.maximum(1 - np.bincount(context, taken, len(totals)) / totals, _LEAST_LEFT)
    suffix = np.searchsorted(shorter.keys, _keys(points, own.places, size - 1))
    return _Level(taken / totals[context] + left[context] * lower.probability[suffix], left)


def _stored(probability: Floats) -> npt.NDArray[np.uint16]:
    """The cost of a probability in `UNIT`."""
    return np.rint(np.clip(-np.log2(np.maximum(probability, 1e-300)) / UNIT, 0, 0xFFFF)).astype(np.uint16)


@compiled
def _depths(points: Any) -> Any:
    """How many characters stand before each in its text, with the start of it, int32 [points]."""
    depth = np.zeros(points.size, np.int32)
    for i in range(1, points.size):
        depth[i] = 0 if points[i] == START else depth[i - 1] + 1
    return depth


@compiled
def _keys(points: Any, places: Any, size: int) -> Any:
    """Keys of the runs of `size` characters that end at `places`, uint64 [places]."""
    keys = np.empty(places.size, np.uint64)
    for i in range(places.size):
        run = np.uint64(0)
        for point in points[places[i] - size + 1 : places[i] + 1]:
            run = lengthened(run, point)
        keys[i] = key_of(run, size)
    return keys


def _counted(points: npt.NDArray[np.uint32], depth: npt.NDArray[np.int32], size: int) -> _Runs:
    """The runs of `size` characters that lie in one text, its start being one of them."""
    places = np.flatnonzero(depth >= size - 1)
    keys, first, counts = np.unique(_keys(points, places, size), return_index=True, return_counts=True)
    return _Runs(keys, places[first], counts)


def _continuations(points: npt.NDArray[np.uint32], runs: list[_Runs], size: int) -> Integers:
    """How many different characters stand before each run of `size` characters [runs]."""
    own, longer = runs[size - 1], runs[size]
    suffix = np.searchsorted(own.keys, _keys(points, longer.places, size))
    found = np.bincount(suffix, minlength=len(own.keys))
    return np.where(points[own.places - size + 1] == START, own.counts, found)


def _discounts(counts: Integers) -> Floats:
    """What is taken from each count, after Chen & Goodman (1999), equation 26: by whether it is 1, 2 or more."""
    numbers = [int((counts == number).sum()) for number in (1, 2, 3, 4)]
    if min(numbers) == 0:
        by_count = [0.0, 0.5, 0.75, 0.75]
    else:
        share = numbers[0] / (numbers[0] + 2 * numbers[1])
        by_count = [0.0, *(n - (n + 1) * share * numbers[n] / numbers[n - 1] for n in (1, 2, 3))]
        by_count = [min(max(value, 0.05), 0.95 * max(n, 1)) if n else 0.0 for n, value in enumerate(by_count)]
    return np.asarray(by_count)[np.minimum(counts, 3)]


def _least_count(runs: list[_Runs], most: int) -> int:
    """How often runs of two and more characters must occur for all that do so to be no more than `most`."""
    room = most - len(runs[0].keys)
    counts = np.sort(np.concatenate([own.counts for own in runs[1:]]))[::-1]
    if len(counts) <= max(room, 0):
        return 1
    return int(counts[max(room, 0)]) + 1
