"""The classifier of quality: what it learns, keeps, refuses and reports."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.quality.classifier import CLASSIFIER, Classifier, logistic, quantised
from stoker.data.quality.evaluation import area_under_curve
from stoker.data.quality.features import BUCKETS, buckets_of, placed_buckets, summed, tokens_of
from stoker.data.quality.model_file import write_model
from stoker.data.quality.training import Settings, Trained, train_classifier
from stoker.errors import BadInput
from tests.data.written_text import english

_GOOD = ["harbour", "town", "under", "long", "evening", "light", "people", "walked", "home", "along", "river"]
_BAD = ["click", "cheap", "offer", "free", "winner", "bonus", "deal", "discount", "login", "subscribe", "sale"]
_HAN_GOOD, _HAN_BAD = "山水之间有人家门前流水声清夜读书灯下写字", "点击购买优惠免费中奖立即注册登录下载链接广告"


def drawn(seed: int, words: list[str], share: float, count: int = 150) -> list[str]:
    """English and Chinese texts in which a share of the words is from `words`, the rest from both sides."""
    draw = random.Random(seed)
    both, good = _GOOD + _BAD, words is _GOOD
    texts = []
    for number in range(count):
        if number % 3:
            texts.append(" ".join(draw.choice(words if draw.random() < share else both) for _ in range(40)))
        else:
            own = _HAN_GOOD if good else _HAN_BAD
            everything = _HAN_GOOD + _HAN_BAD
            texts.append("".join(draw.choice(own if draw.random() < share else everything) for _ in range(60)))
    return texts


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train_classifier(drawn(1, _GOOD, 0.5), drawn(2, _BAD, 0.5), Settings())


def test_good_text_scores_above_bad_text_that_it_has_not_seen_in_both_scripts(trained: Trained) -> None:
    good, bad = drawn(11, _GOOD, 0.5), drawn(12, _BAD, 0.5)
    scores = np.asarray([trained.classifier.score(text) for text in good + bad])
    sides = np.asarray([True] * len(good) + [False] * len(bad))
    assert (area_under_curve(scores, sides) or 0) > 0.97
    for script in (slice(0, None, 3), slice(1, None, 3)):
        assert np.mean([trained.classifier.score(text) for text in good[script]]) > 0.8
        assert np.mean([trained.classifier.score(text) for text in bad[script]]) < 0.2


def test_the_report_counts_what_was_held_out_by_language(trained: Trained) -> None:
    groups = {one.group: one for one in trained.report.groups}
    assert trained.report.whole.group == "all"
    assert 30 <= groups["all"].good + groups["all"].bad <= 90, "about a fifth of 300"
    assert groups["all"].good == groups["en"].good + groups["zh"].good
    assert (groups["zh"].auc or 0) > 0.9


def test_what_tells_is_named_in_the_words_of_the_text(trained: Trained) -> None:
    for own, runs in ((_GOOD + list(_HAN_GOOD), trained.good), (_BAD + list(_HAN_BAD), trained.bad)):
        assert len(runs) >= 10
        single = [run.run for run in runs if " " not in run.run and (run.run.isascii() or len(run.run) == 1)]
        assert len(single) >= 5
        assert sum(word in own for word in single) >= 0.9 * len(single)
    assert all(run.weight > 0 and run.good >= run.bad for run in trained.good)
    assert all(run.weight < 0 for run in trained.bad)


def test_the_same_text_gives_the_same_file_and_another_seed_another(tmp_path: Path, trained: Trained) -> None:
    again = train_classifier(drawn(1, _GOOD, 0.5), drawn(2, _BAD, 0.5), Settings())
    other = train_classifier(drawn(1, _GOOD, 0.5), drawn(2, _BAD, 0.5), Settings(seed=1))
    files = [tmp_path / name for name in ("first", "again", "other")]
    for one, file in zip((trained, again, other), files, strict=True):
        one.classifier.write(file)
    first, same, different = (file.read_bytes() for file in files)
    assert first == same
    assert first != different


def test_a_file_gives_the_same_scores_and_says_what_it_was_trained_on(tmp_path: Path, trained: Trained) -> None:
    trained.classifier.write(tmp_path / "model")
    read = Classifier.read(tmp_path / "model")
    for text in drawn(21, _GOOD, 0.3, 9):
        assert read.score(text) == trained.classifier.score(text)
    assert read.description == trained.classifier.description
    assert read.description["positive"]["documents"] == 150
    assert read.description["settings"]["longest"] == 2
    assert (tmp_path / "model").stat().st_size < 300_000


def test_sides_weigh_the_same_however_many_documents_they_have() -> None:
    few = train_classifier(drawn(1, _GOOD, 0.5, 400), drawn(2, _BAD, 0.5, 60), Settings())
    texts = drawn(31, _GOOD, 0.5), drawn(32, _BAD, 0.5)
    right = [
        np.mean([(few.classifier.score(text) > 0.5) == side for text in own])
        for side, own in zip((1, 0), texts, strict=True)
    ]
    assert min(right) > 0.85


@pytest.mark.parametrize("broken", ["missing", "text", "cut", "changed", "other model", "other version"])
def test_a_file_that_is_no_whole_classifier_is_refused(tmp_path: Path, trained: Trained, broken: str) -> None:
    path = tmp_path / "model"
    trained.classifier.write(path)
    content = path.read_bytes()
    if broken == "missing":
        path.unlink()
    elif broken == "text":
        path.write_text("a text that somebody took for a model")
    elif broken == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif broken == "changed":
        path.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    elif broken == "other model":
        write_model(path, "model of something else", {}, {"weights": trained.classifier.weights})
    else:
        write_model(path, CLASSIFIER, {"format": 99}, {"weights": trained.classifier.weights})
    with pytest.raises(BadInput, match=r"train-classifier|checksum"):
        Classifier.read(path)


def test_too_little_text_is_refused() -> None:
    with pytest.raises(BadInput, match=r"the negative text: [345] documents"):
        train_classifier(drawn(1, _GOOD, 0.5), drawn(2, _BAD, 0.5, 5), Settings())


def test_a_text_without_tokens_is_neither_good_nor_bad(trained: Trained) -> None:
    assert trained.classifier.score("") == trained.classifier.score(" \n ") == 0.5


@given(st.text(st.sampled_from("ab +山水。\n"), max_size=40), st.integers(1, 4))
def test_runs_are_those_of_every_length_at_every_token(text: str, longest: int) -> None:
    tokens = tokens_of(text)
    buckets = buckets_of(tokens, longest)
    placed, firsts, sizes = placed_buckets(tokens, longest)
    assert placed.tolist() == buckets.tolist()
    wanted = [(i, size) for i in range(len(tokens)) for size in range(1, min(longest, len(tokens) - i) + 1)]
    assert list(zip(firsts.tolist(), sizes.tolist(), strict=True)) == wanted
    seen: dict[tuple[int, ...], int] = {}
    for (first, size), bucket in zip(wanted, buckets.tolist(), strict=True):
        assert seen.setdefault(tuple(tokens[first : first + size].tolist()), bucket) == bucket
        assert 0 <= bucket < BUCKETS
    weights = np.arange(BUCKETS, dtype=np.int64)[::-1] % 251 - 125
    total, count = summed(tokens, longest, weights.astype(np.int8))
    assert (total, count) == (int(weights[buckets].sum()), len(buckets))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_the_area_under_the_curve_is_the_chance_of_the_right_order(pairs: list[tuple[int, bool]]) -> None:
    scores, good = np.asarray([score for score, _ in pairs], float), np.asarray([side for _, side in pairs])
    found = area_under_curve(scores, good)
    if good.all() or not good.any():
        assert found is None
        return
    orders = [(a > b) + 0.5 * (a == b) for a in scores[good] for b in scores[~good]]
    assert found == pytest.approx(np.mean(orders))


@given(st.floats(-1e6, 1e6))
def test_the_logistic_function_never_overflows(value: float) -> None:
    assert 0 <= logistic(value) <= 1
    assert logistic(value) + logistic(-value) == pytest.approx(1)


def test_eight_bits_keep_a_weight_within_half_a_step() -> None:
    weights = np.random.default_rng(0).normal(size=1000)
    small, step = quantised(weights)
    assert np.abs(small * step - weights).max() <= step / 2 + 1e-12
    assert quantised(np.zeros(3))[1] == 1.0


def test_text_that_is_good_and_bad_is_refused_or_told_with_its_share() -> None:
    good, bad = ([english(seed, 60) for seed in range(start, start + 100)] for start in (0, 1000))
    with pytest.raises(BadInput, match=r"are the same \(100% of the smaller side\)"):
        train_classifier(good, good, Settings(epochs=1))
    with pytest.raises(BadInput, match=r"50 of 100 .*\(50% of the smaller side\)"):
        train_classifier(good, [*good[:50], *bad[:50]], Settings(epochs=1))
    found = train_classifier(good, [*good[:30], *bad, *bad], Settings(epochs=1))
    assert (found.on_both_sides, found.share_on_both_sides) == (30, 0.3)
    assert train_classifier(good, bad, Settings(epochs=1)).on_both_sides == 0
