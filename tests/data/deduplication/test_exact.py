"""Identical texts: one stays, whichever is preferred."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.deduplication import exact_duplicates


def digests(texts: list[str]) -> np.ndarray:
    return np.frombuffer(b"".join(hashlib.sha256(text.encode()).digest() for text in texts), np.uint8).reshape(
        -1, 32
    )


def test_exact_duplicates_name_the_preferred() -> None:
    texts = ["a", "b", "a", "A", "b", "a"]
    removed = exact_duplicates(digests(texts), np.arange(6))
    assert removed.rows() == [(2, 0, 1.0), (4, 1, 1.0), (5, 0, 1.0)]
    removed = exact_duplicates(digests(texts), np.arange(6)[::-1].copy())
    assert removed.rows() == [(0, 5, 1.0), (1, 4, 1.0), (2, 5, 1.0)]


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.randoms())
def test_of_each_text_the_one_of_lowest_rank_stays(texts: list[str], draw: object) -> None:
    ranks = list(range(len(texts)))
    draw.shuffle(ranks)  # type: ignore[attr-defined]
    removed = exact_duplicates(digests(texts), np.asarray(ranks, np.int64))
    best = {text: min(ranks[i] for i, other in enumerate(texts) if other == text) for text in texts}
    wanted = [(i, ranks.index(best[text]), 1.0) for i, text in enumerate(texts) if ranks[i] != best[text]]
    assert removed.rows() == wanted
