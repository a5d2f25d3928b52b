"""A model that learns from its own text collapses and is warned of; real text beside real text is not."""

from __future__ import annotations

import pydoc_data.topics
import random
import re
from collections import defaultdict

import pytest

from stoker.data.synthetic.collapse import collapse_over


def real_texts() -> list[str]:
    """Paragraphs of the documentation of Python."""
    everything = "\n\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))
    return [one for one in re.split(r"\n\s*\n", everything) if len(one.split()) >= 15][::2]


def written_by_a_model_of(texts: list[str], seed: int) -> list[str]:
    """As many texts as long, each word drawn as often as it followed the word before it in `texts`."""
    draw, following = random.Random(seed), defaultdict(list)
    for text in texts:
        words = text.split()
        for before, word in zip(["", *words], words, strict=False):
            following[before].append(word)
    found = []
    for text in texts:
        words = [draw.choice(following[""])]
        for _ in text.split()[1:]:
            words.append(draw.choice(following.get(words[-1]) or following[""]))
        found.append(" ".join(words))
    return found


@pytest.fixture(scope="module")
def generations() -> dict[str, list[str]]:
    """Text of a model of real text, and of three more, each of a model of the text of the one before."""
    found, texts = {}, real_texts()
    for number in range(1, 5):
        texts = written_by_a_model_of(texts, number)
        found[f"generation {number}"] = texts
    return found


def test_a_model_that_learns_from_its_own_text_is_warned_of(generations: dict[str, list[str]]) -> None:
    found = collapse_over(generations)
    assert found.warns
    by_name = {trend.measure: trend for trend in found.trends}
    assert by_name["distinct_2"].warns
    assert list(by_name["distinct_2"].means) == sorted(by_name["distinct_2"].means, reverse=True)


def test_samples_of_one_model_are_not(generations: dict[str, list[str]]) -> None:
    real = real_texts()
    alike = {f"sample {seed}": written_by_a_model_of(real, 100 + seed) for seed in range(4)}
    assert not collapse_over(alike).warns


def test_parts_of_real_text_are_not() -> None:
    texts = real_texts()
    warned = 0
    for seed in range(10):
        random.Random(seed).shuffle(texts)
        size = len(texts) // 4
        warned += collapse_over({str(part): texts[part * size : (part + 1) * size] for part in range(4)}).warns
    assert warned == 0, "1 in 100 is promised: that even one of ten warns has a chance below 1 in 10"
