"""What is divided over ranks is held once and in order, whatever the sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.layout.shares import attention_share, chunk


@given(st.integers(0, 200), st.integers(1, 20))
def test_chunks_are_the_whole_in_order_and_only_the_last_are_short(length: int, parts: int) -> None:
    chunks = [chunk(length, parts, index) for index in range(parts)]
    assert [place for first, last in chunks for place in range(first, last)] == list(range(length))
    sizes = [last - first for first, last in chunks]
    assert sizes == sorted(sizes, reverse=True)
    assert all(size in (0, sizes[0]) for size in sizes[: sum(size > 0 for size in sizes) - 1])


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 16))
def test_every_query_head_is_on_one_rank_with_the_key_head_it_reads(kv_heads: int, group: int, ranks: int) -> None:
    heads = kv_heads * group
    shares = [attention_share(heads, kv_heads, ranks, rank) for rank in range(ranks)]
    assert sorted(h for s in shares for h in range(*s.queries)) == list(range(heads))
    for rank, share in enumerate(shares):
        first, last = share.key_values
        assert {head // group for head in range(*share.queries)} <= set(range(first, last))
        holders = [other for other, its in enumerate(shares) if its.key_values == share.key_values and first < last]
        if first < last:
            assert list(range(*share.holders)) == holders
        assert rank in range(*share.holders)
    held = [kv for share in shares for kv in range(*share.key_values)]
    assert set(held) == set(range(kv_heads))
    if kv_heads >= ranks:
        assert len(held) == kv_heads


def test_query_heads_are_dealt_out_as_evenly_as_groups_allow() -> None:
    assert [attention_share(8, 2, 4, rank).queries for rank in range(4)] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert [attention_share(6, 2, 4, rank).key_values for rank in range(4)] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert [attention_share(6, 2, 3, rank).holders for rank in range(3)] == [(0, 2), (0, 2), (2, 3)]
