"""Components of proposals: what resembles one another is together, whatever the chunks and the order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stoker.data.deduplication import near_duplicates, sign
from stoker.data.deduplication.bands import bands_and_rows
from stoker.data.deduplication.components import components, groups
from stoker.recipe import Deduplication
from tests.data.deduplication.test_near import SETTINGS, planted
from tests.data.written_text import MANNERS, english


def test_removal_by_components_is_that_of_all_at_once(tmp_path: Path) -> None:
    texts = [text for manner in MANNERS for text in planted(manner, 15, 0.82)[0]] + ["", "。", "..."]
    signatures = sign(texts, SETTINGS)
    whole = near_duplicates(texts, SETTINGS, signatures).rows()
    assert len(whole) > 40
    for chunk, most in ((7, 5), (1000, 1000)):
        component = components(lambda places: signatures[places], len(texts), SETTINGS, tmp_path, chunk)
        found = []
        for group in groups(component, np.arange(len(texts)), most):
            own = near_duplicates([texts[place] for place in group], SETTINGS, signatures[group])
            found += [(int(group[i]), int(group[j]), similarity) for i, j, similarity in own.rows()]
        assert sorted(found) == whole
    assert list(tmp_path.iterdir()) == []


def test_components_do_not_depend_on_the_order(tmp_path: Path) -> None:
    texts, _ = planted("mathematics", 60, 0.8)
    signatures = sign(texts, SETTINGS)
    order = np.random.default_rng(3).permutation(len(texts))
    component = components(lambda places: signatures[places], len(texts), SETTINGS, tmp_path)
    other = components(lambda places: signatures[order[places]], len(texts), SETTINGS, tmp_path)
    partition = {frozenset(np.flatnonzero(component == head).tolist()) for head in set(component.tolist())}
    shuffled = {frozenset(order[other == head].tolist()) for head in set(other.tolist())}
    assert partition == shuffled


def test_a_bucket_larger_than_a_chunk_is_one_component(tmp_path: Path) -> None:
    signatures = np.repeat(sign([english(0), english(1)], SETTINGS), [50, 3], axis=0)
    component = components(lambda places: signatures[places], 53, SETTINGS, tmp_path, chunk=8)
    assert component.tolist() == [0] * 50 + [50] * 3


def test_documents_without_tokens_are_alone(tmp_path: Path) -> None:
    signatures = sign(["", "...", "。", "word"], SETTINGS)
    assert components(lambda places: signatures[places], 4, SETTINGS, tmp_path).tolist() == [0, 1, 2, 3]
    assert components(lambda places: signatures[places], 0, SETTINGS, tmp_path).tolist() == []


def test_groups_hold_whole_components_in_the_order_of_ranks() -> None:
    component = np.asarray([0, 1, 0, 3, 1, 0, 6, 6])
    ranks = np.asarray([5, 1, 2, 0, 0, 7, 3, 4])
    assert [group.tolist() for group in groups(component, ranks, 4)] == [[2, 0, 5], [4, 1, 6, 7]]
    assert [group.tolist() for group in groups(component, ranks, 1)] == [[2, 0, 5], [4, 1], [6, 7]]
    assert list(groups(np.arange(4), np.arange(4), 4)) == []


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.9, 1.0])
@pytest.mark.parametrize("permutations", [16, 64, 128, 500])
def test_bands_find_pairs_at_the_threshold(threshold: float, permutations: int) -> None:
    bands, rows = bands_and_rows(Deduplication(threshold=threshold, permutations=permutations))
    assert bands * rows <= permutations
    assert 1 - (1 - threshold**rows) ** bands >= 0.98


def test_given_bands_are_those_used() -> None:
    assert bands_and_rows(Deduplication(bands=32, rows=4)) == (32, 4)
