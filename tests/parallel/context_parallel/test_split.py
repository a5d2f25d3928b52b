"""The balanced split: every place is somebody's, and causal work is the same for every rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.parallel.context_parallel import own_places
from stoker.parallel.context_parallel.pieces import find_pieces
from stoker.parallel.context_parallel.split import in_order, own_part, own_ranges
from tests.distributed import run_ranks
from tests.parallel.context_parallel.ranks import group_of


@given(length=st.integers(0, 200), ranks=st.integers(1, 9))
def test_places_of_all_ranks_are_a_permutation(length: int, ranks: int) -> None:
    places = [own_places(length, ranks, rank) for rank in range(ranks)]
    assert all(place.dtype == torch.int64 for place in places)
    assert sorted(torch.cat(places).tolist()) == list(range(length))


@given(length=st.integers(1, 100), ranks=st.integers(1, 6))
def test_parts_in_order_are_the_whole(length: int, ranks: int) -> None:
    whole = torch.arange(2 * length).view(2, length)
    parts = [own_part(whole, 1, ranks, rank) for rank in range(ranks)]
    assert all(torch.equal(part[0], own_places(length, ranks, rank)) for rank, part in enumerate(parts))
    assert torch.equal(in_order(parts, 1, length), whole)


def test_places_are_an_early_and_a_late_chunk() -> None:
    assert [own_places(16, 4, rank).tolist() for rank in range(4)] == [
        [0, 1, 14, 15],
        [2, 3, 12, 13],
        [4, 5, 10, 11],
        [6, 7, 8, 9],
    ]


@given(chunk=st.integers(1, 20), ranks=st.integers(1, 8), missing=st.integers(0, 19))
def test_causal_work_is_balanced_within_one_chunk_of_queries(chunk: int, ranks: int, missing: int) -> None:
    length = 2 * ranks * chunk - min(missing, chunk - 1)
    work = [
        sum(
            (piece.queries[1] - piece.queries[0]) * (piece.keys[1] - piece.keys[0])
            if piece.sees_all(None)
            else sum(range(1, piece.queries[1] - piece.queries[0] + 1))
            for piece in find_pieces(own_ranges(length, ranks, rank), ((0, length),), None, None)
        )
        for rank in range(ranks)
    ]
    assert sum(work) == length * (length + 1) // 2
    assert max(work) - min(work) <= chunk * length


@given(
    length=st.integers(1, 40),
    ranks=st.integers(1, 5),
    window=st.none() | st.integers(1, 45),
    tile=st.none() | st.integers(1, 9),
    data=st.data(),
)
def test_pieces_hold_every_visible_pair_once(
    length: int, ranks: int, window: int | None, tile: int | None, data: st.DataObject
) -> None:
    starts = sorted({0, *data.draw(st.lists(st.integers(0, length - 1), max_size=6))})
    document = [sum(start <= place for start in starts) for place in range(length)]
    seen: list[tuple[int, int]] = []
    for rank in range(ranks):
        own, places = own_ranges(length, ranks, rank), own_places(length, ranks, rank).tolist()
        for source in range(ranks):
            others = own_places(length, ranks, source).tolist()
            for whole in find_pieces(own, own_ranges(length, ranks, source), (tuple(starts),), window):
                for piece in whole.tiles(window, tile):
                    queries, keys = places[piece.query_slice], others[piece.key_slice]
                    assert (queries[0], queries[-1] + 1) == piece.queries
                    assert (keys[0], keys[-1] + 1) == piece.keys
                    assert document[keys[0]] == document[queries[-1]]
                    pairs = [
                        (q, k) for q in queries for k in keys if q - k >= 0 and (window is None or q - k < window)
                    ]
                    assert {q for q, _ in pairs} == set(queries)
                    if piece.sees_all(window):
                        assert len(pairs) == len(queries) * len(keys)
                    if piece.is_triangle(window):
                        assert pairs == [(q, k) for q in queries for k in keys if k <= q]
                    seen += pairs
    assert sorted(seen) == [
        (q, k)
        for q in range(length)
        for k in range(q + 1)
        if document[q] == document[k] and (window is None or q - k < window)
    ]


def _gathered(rank: int, ranks: int, store: Any, lengths: list[int]) -> None:
    split = group_of(rank, ranks, store)
    for length in lengths:
        whole = torch.arange(6.0 * length, dtype=torch.float64).view(2, length, 3).requires_grad_()
        for dim, x in ((1, whole), (-2, whole), (2, whole.transpose(1, 2))):
            own = split.cut(x.detach(), dim).requires_grad_()
            assert own.shape[dim] == split.sizes(length)[rank] == len(split.places(length, own.device).own)
            gathered = split.gather(own, dim, length)
            assert torch.equal(gathered, x)
            (gathered * (rank + 1) * x.detach()).sum().backward()
            assert torch.equal(own.grad, split.cut(x.detach(), dim) * sum(range(1, ranks + 1)))


@pytest.mark.parametrize("ranks", [1, 3])
def test_gather_is_the_whole_and_its_gradient_a_sum(ranks: int) -> None:
    run_ranks(_gathered, ranks, [1, 2, 5, 6, 7, 24])
