"""From a stream of texts to those that go."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from stoker.data.deduplication import find_duplicates, near_duplicates
from stoker.recipe import Deduplication
from tests.data.deduplication.test_near import SETTINGS, planted
from tests.data.test_minhash import plain_jaccard
from tests.data.written_text import MANNERS, english


def mixed_texts() -> list[str]:
    texts = [text for manner in MANNERS for text in planted(manner, 12, 0.83)[0]]
    texts += [texts[3], texts[20], texts[20], "", "..."]
    random.Random(4).shuffle(texts)
    return texts


def test_a_stream_loses_what_the_same_texts_in_memory_lose(tmp_path: Path) -> None:
    texts = mixed_texts()
    found = find_duplicates(iter(texts), SETTINGS, folder=tmp_path)
    assert set(found.index.tolist()) == set(near_duplicates(texts, SETTINGS).index.tolist())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("clusters", ["direct", "connected"])
def test_the_survivors_do_not_depend_on_the_order(clusters: str) -> None:
    settings = Deduplication.model_validate({"keep": "longest", "clusters": clusters})
    survivors = set()
    for seed in range(4):
        texts = mixed_texts()
        random.Random(seed).shuffle(texts)
        gone = set(find_duplicates(texts, settings).index.tolist())
        survivors.add(frozenset(text for index, text in enumerate(texts) if index not in gone))
    assert len(survivors) == 1


def test_what_is_kept_is_below_the_threshold_and_what_goes_is_not() -> None:
    texts = mixed_texts()
    found = find_duplicates(texts, SETTINGS)
    kept = np.delete(np.arange(len(texts)), found.index).tolist()
    for index, original, similarity in found.rows():
        assert original in kept
        assert plain_jaccard(texts[index], texts[original]) == pytest.approx(similarity)
        assert similarity >= SETTINGS.threshold
    similar = [(i, j) for i in kept for j in kept if i < j and plain_jaccard(texts[i], texts[j]) >= 0.8]
    assert similar == []


def test_the_best_by_a_measure_is_kept() -> None:
    texts = [english(1), english(1).upper(), english(1).title(), english(2)]
    settings = Deduplication(keep="best", quality="fluency")
    found = find_duplicates(texts, settings, quality=np.asarray([0.2, 0.9, np.nan, 0.1]))
    assert found.rows() == [(0, 1, 1.0), (2, 1, 1.0)]


def test_exact_alone_and_nothing_at_all() -> None:
    texts = ["a b c", "A b c", "a b c"]
    assert find_duplicates(texts, Deduplication(near=False)).rows() == [(2, 0, 1.0)]
    assert find_duplicates(texts, Deduplication(near=False, exact=False)).rows() == []
    assert find_duplicates([], SETTINGS).rows() == []
