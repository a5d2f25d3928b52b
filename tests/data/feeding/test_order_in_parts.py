"""A part of an epoch's order is that part of the whole order."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoker.counter_random import permutation
from stoker.data.feeding import Feed
from stoker.data.feeding import order_in_parts as module
from stoker.data.feeding.order_in_parts import OrderInParts
from stoker.data.feeding.sample_index import DocumentOrder
from tests.data.corpora import recipe_for
from tests.data.feeding.drawn import unique_tokens
from tests.data.feeding.test_documents_by_length import L, with_stages


@given(st.data(), st.integers(0, 2**64 - 1), st.integers(1, 3_000), st.integers(0, 9))
def test_stretches_are_cut_as_in_the_whole_order(data: st.DataObject, key: int, count: int, longest: int) -> None:
    """Documents without tokens included, at all borders of documents and of bins."""
    lengths = np.random.default_rng(key % 2**32).integers(0, longest + 1, count)
    lengths[0] += 1
    total = int(lengths.sum())
    documents = permutation(key, count)
    whole = DocumentOrder(documents, np.concatenate([[0], np.cumsum(lengths[documents])]))
    chosen = st.tuples(st.integers(0, total - 1), st.integers(1, 40))
    stretches = data.draw(st.lists(chosen, min_size=1, max_size=8))
    begin = np.asarray([first for first, _ in stretches])
    end = np.minimum(begin + np.asarray([length for _, length in stretches]), total)
    part = DocumentOrder(*OrderInParts(key, lengths).around(begin, end))
    rows = np.arange(len(begin))
    expected, found = (order.pieces(begin, end, rows, 0 * rows, 0, 0) for order in (whole, part))
    for name, column in vars(expected).items():
        assert np.array_equal(getattr(found, name), column), name


def test_numbers_drawn_in_several_goes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.arange(1, 1001)
    begin, end = np.asarray([5, 70_000]), np.asarray([900, 71_000])
    expected = OrderInParts(3, lengths).around(begin, end)
    monkeypatch.setattr(module, "_AT_ONCE", 7)
    for one, other in zip(expected, OrderInParts(3, lengths).around(begin, end), strict=True):
        assert np.array_equal(one, other)
    assert len(expected[0]) < len(lengths)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=40), st.integers(0, 9), st.integers(1, 60))
def test_a_few_steps_are_those_of_the_run(sizes: list[int], seed: int, step: int) -> None:
    assume(sum(sizes) >= 8)
    with unique_tokens({"a": sizes, "b": sizes[::-1]}) as drawn:
        recipe = recipe_for(drawn.corpus, 8, 4, seed=seed, steps=60)
        run, few = Feed(drawn.corpus, recipe), Feed(drawn.corpus, recipe, few_steps=True)
        assert few.spans(step) == run.spans(step)
        assert few.valid_tokens(step) == run.valid_tokens(step)
        assert few.digest(step) == run.digest(step)


@given(st.lists(st.integers(0, 14), min_size=4, max_size=12), st.integers(1, 9))
def test_a_few_steps_of_a_later_choice_of_documents_are_those_of_the_run(sizes: list[int], until: int) -> None:
    assume(sum(size for size in sizes if size >= 4) >= L)
    with unique_tokens({"a": sizes}) as drawn:
        recipe = with_stages(drawn, [{"until": until}, {"documents": {"minimum_tokens": 4}}])
        run, few = Feed(drawn.corpus, recipe), Feed(drawn.corpus, recipe, few_steps=True)
        for step in (1, until, until + 1, until + 7):
            assert few.spans(step) == run.spans(step)


def test_looking_at_a_step_loads_no_torch() -> None:
    program = "import sys, stoker.data.showing, stoker.data.feeding.as_recorded; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
