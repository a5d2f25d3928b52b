"""Sets of moments against sets of whole numbers."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stoker.profiling.intervals import Intervals, nest, of_pairs, partition, union

_END = 40
pairs = st.lists(st.tuples(st.integers(0, _END), st.integers(0, _END)), max_size=12)
layers = st.lists(st.tuples(st.sampled_from("abc"), pairs), max_size=4)


def moments(intervals: Intervals) -> set[int]:
    return {
        m for start, end in zip(intervals.starts, intervals.ends, strict=True) for m in range(int(start), int(end))
    }


def given_moments(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


@given(pairs)
def test_a_union_holds_each_moment_once_and_in_order(spans: list[tuple[int, int]]) -> None:
    found = of_pairs(spans)
    assert moments(found) == given_moments(spans)
    assert found.total == len(given_moments(spans))
    assert (found.starts < found.ends).all()
    assert (found.ends[:-1] < found.starts[1:]).all()


@given(pairs, st.randoms(use_true_random=False))
def test_a_union_does_not_depend_on_order(spans: list[tuple[int, int]], random: Random) -> None:
    shuffled = list(spans)
    random.shuffle(shuffled)
    one, other = of_pairs(spans), of_pairs(shuffled)
    assert one.starts.tolist() == other.starts.tolist()
    assert one.ends.tolist() == other.ends.tolist()


@given(pairs, pairs)
def test_operations_are_those_of_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, other = of_pairs(left), of_pairs(right)
    assert moments(one & other) == given_moments(left) & given_moments(right)
    assert moments(one - other) == given_moments(left) - given_moments(right)
    assert moments(one | other) == given_moments(left) | given_moments(right)


@given(layers, st.integers(0, 10), st.integers(20, _END))
def test_a_partition_is_disjoint_and_covers_the_window(
    spans: list[tuple[str, list[tuple[int, int]]]], start: int, end: int
) -> None:
    found = partition((start, end), [(name, of_pairs(each)) for name, each in spans], "rest")
    parts = [moments(part) for part in found.values()]
    assert sum(map(len, parts)) == len(set().union(*parts)) == end - start
    assert sum(part.total for part in found.values()) == end - start


@given(layers)
def test_the_first_layer_that_covers_a_moment_has_it(spans: list[tuple[str, list[tuple[int, int]]]]) -> None:
    found = partition((0, _END), [(name, of_pairs(each)) for name, each in spans], "rest")
    for moment in range(_END):
        owner = next((name for name, each in spans if moment in given_moments(each)), "rest")
        assert moment in moments(found[owner])


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Spans that begin and end inside each other, in any order."""
    found: list[tuple[int, int]] = []

    def grow(start: int, end: int, depth: int) -> None:
        cursor = start
        while cursor < end and draw(st.booleans()):
            first = draw(st.integers(cursor, end - 1))
            last = draw(st.integers(first + 1, end))
            found.append((first, last))
            if depth:
                grow(first, last, depth - 1)
            cursor = last

    grow(0, _END, 3)
    return draw(st.permutations(found))


@given(trees())
def test_the_innermost_event_has_the_moment(spans: list[tuple[int, int]]) -> None:
    nested = nest([start for start, _ in spans], [end for _, end in spans])
    segments = list(zip(nested.starts, nested.ends, nested.owners, strict=True))
    for moment in range(_END):
        around = [end - start for start, end in spans if start <= moment < end]
        owners = [owner for start, end, owner in segments if start <= moment < end]
        assert len(owners) == bool(around)
        for owner in owners:
            assert spans[owner][1] - spans[owner][0] == min(around)


@given(trees())
def test_a_parent_is_around_its_child(spans: list[tuple[int, int]]) -> None:
    nested = nest([start for start, _ in spans], [end for _, end in spans])
    for child, parent in enumerate(nested.parents):
        if parent >= 0:
            assert spans[parent][0] <= spans[child][0]
            assert spans[child][1] <= spans[parent][1]


def test_a_child_that_ends_after_its_parent_is_cut() -> None:
    nested = nest([0, 5], [10, 12])
    assert list(zip(nested.starts, nested.ends, nested.owners, strict=True)) == [(0, 5, 0), (5, 10, 1)]


def test_nothing_is_nothing() -> None:
    assert union([], []).total == 0
    assert nest([], []).parents.size == 0
