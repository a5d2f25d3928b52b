"""A model of characters: how many bits each character of a text costs whoever knows those before it.

Interpolated Kneser-Ney with three discounts (Chen & Goodman 1999) over runs of up to five characters, so that no
tokenizer and no script has a say. Runs are known by a 64-bit hash; rare ones are pruned until the model is within
its bound, which moves their mass to shorter runs and leaves a proper distribution over all of Unicode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import code_points, mixed
from stoker.data.quality.model_file import Arrays, file_state, read_model, write_model
from stoker.errors import BadInput

CHARACTER_MODEL = "model of characters"
MADE_BY = "stoker data train-perplexity"
BITS = "perplexity.bits_per_character"
"""Name of the measure."""
UNIT = 1 / 2048
"""Costs are kept in this part of a bit, in 16 bits."""
START = 0x110000
"""Stands before a text; no character."""
CHARACTERS = 0x110000
"""Code points there can be: what the mass for the unknown is divided among."""
WINDOW, WINDOWS = 512, 8
"""Characters of a window, and how many are looked at of a long text, spread evenly over it."""
_FORMAT = 1
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class CharacterModel:
    """A trained model."""

    keys: npt.NDArray[np.uint64]
    """Hashes of the runs that it knows, in order [runs]."""
    costs: npt.NDArray[np.uint16]
    """Of the last character of each run behind the others, in `UNIT` [runs]."""
    backing_off: npt.NDArray[np.uint16]
    """What it costs to go on with a shorter run where none begins with this one, in `UNIT` [runs]."""
    unknown: float
    """Bits of a character that was never seen."""
    order: int
    """Characters of the longest run."""
    description: dict[str, Any]
    """What it was trained on, and how."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", _table(self.keys, self.costs, self.backing_off))

    def bits_per_character(self, text: str) -> float:
        """Mean cost of the characters of `text` in bits, of a long text judged by windows of it; 0 for no text."""
        points = code_points(text)
        spent, count = 0.0, 0
        for start, stop in windows_of(len(points), self.order - 1):
            known = min(start, self.order - 1)  # these are read for what they tell of the next, and not counted
            bits = self._costs_of(points[start - known : stop], start == known)
            spent, count = spent + float(bits[known:].sum()), count + stop - start
        return spent / count if count else 0.0

    def costs_of(self, text: str) -> npt.NDArray[np.float64]:
        """Bits of each character of `text` [characters]."""
        return self._costs_of(code_points(text), True)

    def _costs_of(self, points: npt.NDArray[np.uint32], at_start: bool) -> npt.NDArray[np.float64]:
        table: npt.NDArray[np.uint64] = vars(self)["_table"]
        bits: npt.NDArray[np.float64] = _costs(points, at_start, table, self.order, self.unknown)
        return bits

    def write(self, path: Path) -> None:
        """Write it to `path`, whole or not at all."""
        facts = {"format": _FORMAT, "unknown": self.unknown, "order": self.order}
        arrays: Arrays = {"keys": self.keys, "costs": self.costs, "backing_off": self.backing_off}
        write_model(path, CHARACTER_MODEL, self.description | facts, arrays)

    @classmethod
    def read(cls, path: Path) -> CharacterModel:
        """The model in a file. Raises `BadInput` where there is none, or one of another version."""
        stored = read_model(path, CHARACTER_MODEL, MADE_BY)
        description = dict(stored.description)
        form, unknown, order = (description.pop(name, None) for name in ("format", "unknown", "order"))
        arrays = [stored.arrays.get(name) for name in ("keys", "costs", "backing_off")]
        if form != _FORMAT or any(array is None for array in arrays):
            raise BadInput(f"{path} is a {CHARACTER_MODEL} of another version; train it again: {MADE_BY}")
        keys, costs, backing_off = (stored.arrays[name] for name in ("keys", "costs", "backing_off"))
        return cls(keys, costs, backing_off, float(unknown), int(order), description)


def loaded_model(path: str) -> CharacterModel:
    """The model in a file, read once in a process unless the file changes. Raises as `CharacterModel.read` does."""
    return _loaded(path, file_state(Path(path)))


@lru_cache(maxsize=2)
def _loaded(path: str, state: tuple[int, int]) -> CharacterModel:
    return CharacterModel.read(Path(path))


def windows_of(characters: int, before: int) -> list[tuple[int, int]]:
    """Stretches of a text of so many characters that are looked at: all of it, or `WINDOWS` windows.

    A window that is not at the beginning has at least `before` characters before it.
    """
    if characters <= WINDOW * WINDOWS + before:
        return [(0, characters)] if characters else []
    starts = [before + (characters - before - WINDOW) * number // (WINDOWS - 1) for number in range(WINDOWS)]
    return [(0 if start == before else start, (0 if start == before else start) + WINDOW) for start in starts]


@compiled
def lengthened(run: Any, point: Any) -> Any:
    """The hash of a run with one more character."""
    return run * _BASE + np.uint64(point) + np.uint64(1)


@compiled
def key_of(run: Any, size: int) -> Any:
    """The key of a run's hash and length."""
    return mixed(run + np.uint64(size) * np.uint64(0xD1B54A32D192ED03))


def _table(
    keys: npt.NDArray[np.uint64], costs: npt.NDArray[np.uint16], backing_off: npt.NDArray[np.uint16]
) -> npt.NDArray[np.uint64]:
    """Half of each key, its cost and its cost of backing off in one number, placed by the other half."""
    places = 16
    while places < 2 * len(keys):
        places *= 2
    table = np.full(places, _EMPTY)
    _fill(table, keys, costs, backing_off)
    return table


@compiled
def _fill(table: Any, keys: Any, costs: Any, backing_off: Any) -> None:
    for i in range(keys.size):
        place = np.int64(keys[i] >> np.uint64(32)) & (table.size - 1)
        while table[place] != _EMPTY:
            place = (place + 1) & (table.size - 1)
        low = keys[i] << np.uint64(32)
        table[place] = low | np.uint64(costs[i]) << np.uint64(16) | np.uint64(backing_off[i])


@compiled
def _sought(table: Any, key: Any) -> Any:
    """What the table has of a key, or `_EMPTY`."""
    place = np.int64(key >> np.uint64(32)) & (table.size - 1)
    while table[place] != _EMPTY and table[place] >> np.uint64(32) != key & np.uint64(0xFFFFFFFF):
        place = (place + 1) & (table.size - 1)
    return table[place]


@compiled
def _costs(points: Any, at_start: bool, table: Any, order: int, unknown: float) -> Any:
    """Bits of each of `points`, float64 [points].

    Of every run that the model knows it also knows what is left without its first or its last character. So if the
    longest known run that ends in one character has length k, that of the next has at most k + 1.
    """
    bits = np.empty(points.size)
    before, runs = np.zeros(order + 1, np.uint64), np.zeros(order + 1, np.uint64)
    known, entry = 0, _EMPTY
    if at_start:
        before[1] = lengthened(np.uint64(0), START)
        entry = _sought(table, key_of(before[1], 1))
        known = 1 if entry != _EMPTY else 0
    for i in range(points.size):
        for size in range(1, order + 1):
            runs[size] = lengthened(before[size - 1], points[i])
        spent = 0.0
        size = min(known + 1, order)
        if size <= known:
            entry = _sought(table, key_of(before[size - 1], size - 1)) if size > 1 else _EMPTY
        found = _sought(table, key_of(runs[size], size))
        while found == _EMPTY and size > 1:
            spent += (entry & np.uint64(0xFFFF)) * UNIT
            size -= 1
            if size > 1:
                entry = _sought(table, key_of(before[size - 1], size - 1))
            found = _sought(table, key_of(runs[size], size))
        if found == _EMPTY:
            bits[i], known = spent + unknown, 0
        else:
            bits[i], known = spent + ((found >> np.uint64(16)) & np.uint64(0xFFFF)) * UNIT, size
        entry = found
        before, runs = runs, before
    return bits
