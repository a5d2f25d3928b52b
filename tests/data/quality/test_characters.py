"""The model of characters: a proper distribution, the counts it was made of, what it finds surprising."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.minhash import code_points
from stoker.data.quality.character_training import Settings, fitted, train_characters
from stoker.data.quality.characters import CHARACTERS, UNIT, WINDOW, WINDOWS, CharacterModel, windows_of
from stoker.errors import BadInput
from tests.data.small_corpus import paragraph, sentence

_TEXTS = [f"{sentence(random.Random(number), 12)} {paragraph(random.Random(number), 15)}" for number in range(150)]


def model_of(texts: list[str], **given: int) -> CharacterModel:
    return fitted([code_points(text) for text in texts], Settings(**given), {})


@pytest.fixture(scope="module")
def model() -> CharacterModel:
    return model_of(_TEXTS)


@pytest.mark.parametrize("runs", [1 << 20, 1500, 300])
@pytest.mark.parametrize("before", ["", "t", "th", "he da", "天气很", "zzz", "和 the ", "\U0001f600x"])
def test_probabilities_of_all_characters_sum_to_one_behind_any_text(runs: int, before: str) -> None:
    model = model_of(_TEXTS, runs=runs)
    known = sorted({character for text in _TEXTS for character in text})
    unknown = CHARACTERS - len(known)
    total = sum(2 ** -model.costs_of(before + character)[-1] for character in known)
    total += unknown * 2 ** -model.costs_of(before + "\u4dff")[-1]
    assert total == pytest.approx(1, abs=6 * UNIT), "each probability is kept to a part of a bit"
    assert len(model.keys) <= runs


def test_a_bigram_model_is_kneser_ney_written_down_in_words() -> None:
    texts = ["abracadabra", "alakazam", "banana", "cabana", "zebra", "panorama", "camera", "pajamas"]
    model = model_of(texts, order=2)
    pairs = Counter(pair for text in texts for pair in pairwise("\0" + text))
    before_all = {b: {a for a, other in pairs if other == b} for _, b in pairs}

    def discounted(counts: list[int]) -> list[float]:
        n = [sum(count == size for count in counts) for size in (1, 2, 3, 4)]
        if min(n) == 0:
            return [0, 0.5, 0.75, 0.75]
        share = n[0] / (n[0] + 2 * n[1])
        raw = [0, *(k - (k + 1) * share * n[k] / n[k - 1] for k in (1, 2, 3))]
        return [0 if k == 0 else min(max(value, 0.05), 0.95 * k) for k, value in enumerate(raw)]

    kinds = {b: len(before) for b, before in before_all.items()}
    lower_cut = discounted(list(kinds.values()))
    total = sum(kinds.values())
    taken = {b: max(count - lower_cut[min(count, 3)], 0) / total for b, count in kinds.items()}
    floor = (1 - sum(taken.values())) / CHARACTERS
    cut = discounted(list(pairs.values()))

    def probability(a: str, b: str) -> float:
        own = {y: count for (x, y), count in pairs.items() if x == a}
        lower = taken.get(b, 0) + floor
        if not own:
            return lower
        left = sum(cut[min(count, 3)] for count in own.values()) / sum(own.values())
        count = own.get(b, 0)
        return max(count - cut[min(count, 3)], 0) / sum(own.values()) + left * lower

    for text in ("abra", "qzza", "namaba"):
        wanted = [-np.log2(probability(a, b)) for a, b in pairwise("\0" + text)]
        assert model.costs_of(text) == pytest.approx(wanted, abs=2 * UNIT)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.sampled_from("abc天\U0001f600 "), min_size=1, max_size=12), min_size=1, max_size=12))
def test_what_is_known_of_a_run_is_known_of_its_parts(texts: list[str]) -> None:
    """On this the search for the longest known run relies: the cost is that of asking for every length in turn."""
    model = model_of(texts, order=4, runs=1000)
    entries = {int(key): place for place, key in enumerate(model.keys)}

    def key(run: str, at_start: bool) -> int:
        mask = (1 << 64) - 1
        value = 0
        for point in ([0x110000] if at_start else []) + [ord(character) for character in run]:
            value = (value * 0x9E3779B97F4A7C15 + point + 1) & mask
        size = len(run) + at_start
        value = (value + size * 0xD1B54A32D192ED03) & mask
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            value = ((value ^ (value >> shift)) * factor) & mask
        return value ^ (value >> 31)

    for text in [*texts, "cab天 b", "\U0001f600\U0001f600"]:
        found = model.costs_of(text)
        for i in range(len(text)):
            spent = 0.0
            for size in range(4, 0, -1):
                first = i - size + 1
                if first < -1:
                    continue
                run, context = text[max(first, 0) : i + 1], text[max(first, 0) : i]
                if (place := entries.get(key(run, first < 0))) is not None:
                    spent += model.costs[place] * UNIT
                    break
                if size > 1 and (place := entries.get(key(context, first < 0))) is not None:
                    spent += model.backing_off[place] * UNIT
            else:
                spent += model.unknown
            assert found[i] == pytest.approx(spent)


def test_noise_and_another_alphabet_cost_more_than_such_text(model: CharacterModel) -> None:
    own = model.bits_per_character(sentence(random.Random(999), 40))
    letters = list(sentence(random.Random(999), 40))
    random.Random(1).shuffle(letters)
    assert model.bits_per_character("".join(letters)) > own + 2
    assert model.bits_per_character("Съешь ещё этих мягких французских булок") > 15


def test_a_file_gives_the_same_costs(tmp_path: Path, model: CharacterModel) -> None:
    model.write(tmp_path / "model")
    read = CharacterModel.read(tmp_path / "model")
    assert read.costs_of(_TEXTS[0]).tolist() == model.costs_of(_TEXTS[0]).tolist()
    content = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BadInput, match="checksum"):
        CharacterModel.read(tmp_path / "model")


def test_the_order_of_documents_has_no_say(tmp_path: Path) -> None:
    files = []
    for number, texts in enumerate((_TEXTS, _TEXTS[::-1])):
        files.append(tmp_path / str(number))
        train_characters(texts, Settings(characters=4000)).model.write(files[-1])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_no_more_is_learnt_from_than_was_asked_for() -> None:
    trained = train_characters(_TEXTS, Settings(characters=4000))
    assert 3500 < trained.characters <= 4000
    assert sum(group.documents for group in trained.groups) > 0
    with pytest.raises(BadInput, match="too few"):
        train_characters(_TEXTS[:5], Settings())


@given(st.integers(0, 20_000), st.integers(1, 7))
def test_a_long_text_is_looked_at_in_windows_spread_over_all_of_it(characters: int, before: int) -> None:
    windows = windows_of(characters, before)
    assert sum(stop - start for start, stop in windows) == min(characters, max(WINDOW * WINDOWS, 0)) or (
        len(windows) == 1 and characters <= WINDOW * WINDOWS + before
    )
    for (_, stop), (start, _) in pairwise(windows):
        assert stop <= start
    if windows:
        assert windows[0][0] == 0
        assert windows[-1][1] == characters


def test_windows_of_an_even_text_cost_about_as_much_as_all_of_it(model: CharacterModel) -> None:
    text = " ".join(sentence(random.Random(number), 20) for number in range(2000, 2200))
    assert len(text) > 2 * WINDOW * WINDOWS
    assert model.bits_per_character(text) == pytest.approx(float(model.costs_of(text).mean()), rel=0.03)
