"""The search for duplicates holds a few numbers of each document in memory, and the rest on disk."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stoker.data.deduplication import search
from stoker.data.deduplication.components import components
from stoker.recipe import Deduplication

_EVERY = 10
"""Of so many documents the last repeats the one before it but for its last word."""


def documents(count: int) -> Iterator[str]:
    for number in range(count):
        repeats = number % _EVERY == _EVERY - 1
        draw = random.Random(number - 1 if repeats else number)
        words = [format(draw.getrandbits(32), "x") for _ in range(24)]
        yield " ".join(words[:-1] if repeats else words)


def test_a_document_takes_no_more_than_200_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worked on at a time is small here, so that what is held of every document shows."""
    monkeypatch.setattr(search, "components", partial(components, chunk=256))
    monkeypatch.setattr(search, "_BATCH_BYTES", 1 << 14)
    monkeypatch.setattr(search, "_GROUP", 256)
    counts, peaks = (4_000, 16_000), []
    search.find_duplicates(documents(100), Deduplication(), folder=tmp_path)  # compiles what is compiled
    for count in counts:
        tracemalloc.start()
        found = search.find_duplicates(documents(count), Deduplication(), folder=tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(found) == count // _EVERY
    assert (peaks[1] - peaks[0]) / (counts[1] - counts[0]) < 200
