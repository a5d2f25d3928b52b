"""Stages that choose documents by their length: each once an epoch, those not trained on yet first."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoker.data.feeding import Feed, Span
from stoker.errors import BadInput
from stoker.recipe import Recipe
from tests.data.corpora import recipe_for
from tests.data.feeding.drawn import UniqueTokens, unique_tokens

L = 4


def with_stages(drawn: UniqueTokens, stages: list[dict[str, Any]], steps: int = 100) -> Recipe:
    recipe = recipe_for(drawn.corpus, L, 1, steps=steps)
    content = recipe.model_dump(mode="json")
    content["data"]["mixture"]["stages"] = stages
    return Recipe.model_validate(content)


def spans_of(feed: Feed, first: int, last: int) -> list[Span]:
    return [span for step in range(first, last + 1) for span in feed.spans(step)]


def inputs_of(spans: list[Span]) -> Counter[tuple[int, int, int]]:
    """Every input: (epoch, document, place in it)."""
    return Counter((span.epoch, span.document, place) for span in spans for place in range(span.start, span.stop))


def sequences(tokens: int) -> int:
    return -(-tokens // L)


lengths = st.lists(st.integers(0, 14), min_size=4, max_size=12)


@given(lengths, st.integers(1, 14), st.integers(1, 30))
def test_a_stage_takes_only_documents_within_its_limits_each_once_an_epoch(
    sizes: list[int], least: int, until: int
) -> None:
    long = {index: size for index, size in enumerate(sizes) if size >= least}
    assume(sum(long.values()) >= L)
    with unique_tokens({"a": sizes}) as drawn:
        stages = [{"until": until}, {"documents": {"minimum_tokens": least}}]
        feed = Feed(drawn.corpus, with_stages(drawn, stages))
        steps = range(until + 1, until + 4 * sequences(sum(sizes)) + 1)
        for step in steps:
            drawn.check(feed.global_batch(step))
        found = inputs_of(spans_of(feed, steps[0], steps[-1]))
        assert {document for _, document, _ in found} <= set(long)
        assert max(found.values()) == 1
        most = feed._index.texts[0].streams[-1].taken_after(0)[list(long)].max()
        last = max(epoch for epoch, _, _ in found)
        for epoch in range(most, last - 1):
            assert {(epoch, index, place) for index, size in long.items() for place in range(size)} <= found.keys()


@given(lengths, st.integers(2, 14))
def test_long_documents_kept_for_the_last_stage_are_all_taken_there(sizes: list[int], least: int) -> None:
    short, long = ([size for size in sizes if (size >= least) is wanted] for wanted in (False, True))
    assume(sum(short) >= L and sum(long) >= L)
    until = sequences(sum(short))
    with unique_tokens({"a": sizes}) as drawn:
        stages = [
            {"until": until, "documents": {"maximum_tokens": least - 1}},
            {"documents": {"minimum_tokens": least}},
        ]
        feed = Feed(drawn.corpus, with_stages(drawn, stages))
        found = inputs_of(spans_of(feed, 1, until + sequences(sum(long))))
        assert max(found.values()) == 1
        whole = {(0, index, place) for index, size in enumerate(sizes) for place in range(size)}
        assert whole <= found.keys()


@given(lengths, st.integers(1, 40))
def test_documents_that_were_not_taken_yet_come_first_when_the_choice_widens(sizes: list[int], until: int) -> None:
    assume(sum(size for size in sizes if size >= 8) >= L)
    with unique_tokens({"a": sizes}) as drawn:
        stages = [{"until": until, "documents": {"minimum_tokens": 8}}, {}]
        feed = Feed(drawn.corpus, with_stages(drawn, stages, steps=500))
        taken = {span.document for span in spans_of(feed, 1, until)}
        fresh = {index: size for index, size in enumerate(sizes) if index not in taken and size}
        assume(sum(fresh.values()) >= L)
        found = inputs_of(spans_of(feed, until + 1, until + sequences(sum(fresh.values()))))
        assert max(found.values()) == 1
        first = {(document, place) for epoch, document, place in found if epoch == 0}
        assert first == {(index, place) for index, size in fresh.items() for place in range(size)}
        assert len(found) - len(first) < L  # the end of the last sequence


@given(lengths, st.integers(1, 40), st.integers(1, 40))
def test_how_often_documents_were_begun_is_counted_right(sizes: list[int], until: int, more: int) -> None:
    assume(sum(size for size in sizes if size >= 6) >= L)
    with unique_tokens({"a": sizes}) as drawn:
        stages = [{"until": until, "documents": {"minimum_tokens": 6}}, {}]
        feed = Feed(drawn.corpus, with_stages(drawn, stages, steps=500))
        text = feed._index.texts[0]
        for stream, first, count in ((text.streams[0], 1, until), (text.streams[1], until + 1, more)):
            begun = {(span.document, span.epoch) for span in spans_of(feed, first, first + count - 1)}
            expected = Counter(document for document, _ in begun)
            before = stream.taken_after(0)
            found = (stream.taken_after(count) - before).tolist()
            for index, size in enumerate(sizes):
                assert not size or found[index] == expected[index]


def test_a_later_stage_that_chooses_documents_changes_no_earlier_sample() -> None:
    with unique_tokens({"a": [3, 9, 5, 12, 7, 2] * 3, "b": [6, 8] * 9}) as drawn:
        plain = Feed(drawn.corpus, with_stages(drawn, []))
        staged = Feed(drawn.corpus, with_stages(drawn, [{"until": 20}, {"documents": {"minimum_tokens": 7}}]))
        assert spans_of(plain, 1, 20) == spans_of(staged, 1, 20)
        assert spans_of(plain, 21, 40) != spans_of(staged, 21, 40)


def test_limits_hold_for_the_sources_that_are_named() -> None:
    with unique_tokens({"a": [3, 9] * 9, "b": [3, 9] * 9}) as drawn:
        limits = {"minimum_tokens": 9, "sources": ["b"]}
        feed = Feed(drawn.corpus, with_stages(drawn, [{"documents": limits}]))
        found = {(span.source, span.document % 2) for span in spans_of(feed, 1, 60)}
        assert found == {("a", 0), ("a", 1), ("b", 1)}


def test_limits_that_leave_less_than_a_sequence_are_refused() -> None:
    with unique_tokens({"a": [3] * 9}) as drawn:
        recipe = with_stages(drawn, [{"until": 3}, {"documents": {"minimum_tokens": 4, "maximum_tokens": 8}}])
        with pytest.raises(BadInput) as caught:
            Feed(drawn.corpus, recipe)
        assert "documents of at least 4 tokens and at most 8 tokens from source 'a'" in str(caught.value)
        assert "0 such documents of 0 tokens in all, fewer than one sequence of 4" in str(caught.value)
