"""Diversity: what the figures are, and that they fall where text repeats itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.minhash import token_hashes
from stoker.data.synthetic.diversity import Diversity, diversity_of, nearest_similarities
from stoker.data.synthetic.runs import cut_to, distinct_share, runs_of, sampled
from stoker.errors import BadInput
from tests.data.small_corpus import paragraph, sentence


def english(seed: int, count: int = 200) -> list[str]:
    draw = random.Random(seed)
    return [sentence(draw, 30) for _ in range(count)]


def templated(seed: int, count: int = 200) -> list[str]:
    draw = random.Random(seed)
    return [
        f"Here is what I think about it. In conclusion {sentence(draw, 4)} I hope this helps." for _ in range(count)
    ]


def one(texts: list[str], **given: object) -> Diversity:
    (found,) = diversity_of({"one": texts}, **given)  # type: ignore[arg-type]
    return found


def test_text_from_a_template_is_less_diverse_by_every_figure() -> None:
    real, written = diversity_of({"real": english(1), "written": templated(2)})
    assert real.tokens == written.tokens
    assert all(ours > theirs for ours, theirs in zip(real.distinct[1:], written.distinct[1:], strict=True))
    assert written.compression > 1.5 * real.compression
    assert written.nearest > real.nearest + 0.2
    assert written.alike > 0.5 > real.alike


@given(
    st.lists(st.text(st.sampled_from("ab 天气"), min_size=1, max_size=20), min_size=1, max_size=6),
    st.integers(1, 3),
)
def test_distinct_runs_are_counted_within_documents(texts: list[str], size: int) -> None:
    rows = [token_hashes(text) for text in texts]
    runs = [tuple(row[i : i + size].tolist()) for row in rows for i in range(len(row) - size + 1)]
    found = runs_of(rows, size)
    assert len(found) == len(runs)
    assert distinct_share(found) == (len(set(runs)) / len(runs) if runs else 0.0)


def test_bodies_of_different_size_are_compared_at_the_same_length() -> None:
    small, large = diversity_of({"small": english(1, 40), "large": english(3, 800)})
    assert small.tokens == large.tokens == sum(len(token_hashes(text)) for text in english(1, 40))
    assert large.distinct[1] == pytest.approx(small.distinct[1], abs=0.05)
    assert large.compression == pytest.approx(small.compression, rel=0.1)


def test_a_few_long_documents_are_compared_by_their_beginnings() -> None:
    """Otherwise the words that a long document repeats would count against it."""
    long = [f"{text} {text} {text} {text}" for text in english(1)]
    repeated, short = diversity_of({"long": long, "short": english(2)})
    assert repeated.tokens == short.tokens
    assert repeated.distinct[1] == pytest.approx(short.distinct[1], abs=0.02)
    assert repeated.compression == pytest.approx(short.compression, rel=0.05)


def test_overlap_is_the_share_of_runs_that_stand_in_real_text() -> None:
    real = english(1)
    assert one(english(9), real=real).in_real == pytest.approx(0, abs=0.01)
    assert one(real[:100], real=real).in_real == 1.0
    half = real[:100] + english(9, 100)
    assert one(half, real=real).in_real == pytest.approx(0.5, abs=0.05)
    assert one(real).in_real is None


def test_the_order_of_documents_and_their_copies_change_nothing() -> None:
    texts = english(4)
    assert one(texts) == one(texts[::-1] + texts[:50])


def test_similarity_with_the_nearest_is_that_of_the_signatures() -> None:
    signatures = np.random.default_rng(0).integers(0, 3, (20, 64)).astype(np.uint32)
    wanted = [max((signatures[i] == signatures[j]).mean() for j in range(20) if j != i) for i in range(20)]
    assert nearest_similarities(signatures) == pytest.approx(wanted)
    assert nearest_similarities(signatures[:1]) == pytest.approx([0])


def test_chinese_is_counted_by_characters() -> None:
    draw = random.Random(1)
    found = one([paragraph(draw) for _ in range(50)])
    assert found.tokens == 50 * 60
    assert found.distinct[0] < 0.05 < found.distinct[1] < found.distinct[2]


def test_too_little_text_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="few has 9 words"):
        diversity_of({"many": english(1), "few": ["only nine words are in this text of mine"]})


@given(st.integers(0, 50))
def test_a_cut_has_so_many_tokens(tokens: int) -> None:
    sample = sampled(["a b c d", "e f", "g h i j k l m", "天气很好"])
    assert sum(map(len, cut_to(sample, tokens))) == min(tokens, 17)
