"""The form of text: what is measured of it, and that junk of kinds never shown is found by it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.quality.classifier import Classifier
from stoker.data.quality.features import tokens_of
from stoker.data.quality.form import NAMES, REPETITION, form_of
from stoker.data.quality.training import Settings, Trained, train_classifier
from stoker.data.quality.usual_form import BEYOND, LEAST, usual_forms
from tests.data.written_text import MANNERS


def measures(text: str) -> dict[str, float]:
    return dict(zip(NAMES, form_of(text, tokens_of(text)).tolist(), strict=True))


def good_texts(first: int, count: int) -> list[str]:
    """English and Chinese pages of several paragraphs."""
    found = []
    for seed in range(first, first + count):
        manner = MANNERS["english" if seed % 2 else "chinese"]
        found.append("\n".join(manner(1000 * seed + line, 40 + 10 * (seed % 7)) for line in range(4)))
    return found


def spam(first: int, count: int) -> list[str]:
    """The only junk that is learnt from: words of advertising among the words of good text, laid out as that is."""
    draw = random.Random(first)
    offers = ["cheap", "offer", "free", "winner", "bonus", "优", "惠", "奖", "购"]
    found = []
    for text in good_texts(first, count):
        words = text.split(" ")
        for place in range(0, len(words), 4):
            words[place] = draw.choice(offers)
        found.append(" ".join(words))
    return found


UNSEEN = {
    "a line over and over": lambda text, draw: (text.splitlines()[0] + "\n") * 12,
    "a phrase over and over": lambda text, draw: text[:30] * 40,
    "numbers": lambda text, draw: " ".join(str(draw.randrange(10**6)) for _ in range(200)),
    "symbols": lambda text, draw: "".join(draw.choice("|<>{}[]=+*~^ ") for _ in range(900)),
    "a menu": lambda text, draw: "\n".join(word[:9] for word in text.split()[:120]),
    "letters at random": lambda text, draw: "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=900)),
}


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train_classifier(good_texts(0, 800), spam(5000, 300), Settings(epochs=2))


@pytest.mark.parametrize("kind", UNSEEN)
def test_junk_of_a_kind_that_was_never_shown_scores_low(trained: Trained, kind: str) -> None:
    draw = random.Random(1)
    junk = [UNSEEN[kind](text, draw) for text in good_texts(9000, 60)]
    assert np.mean([trained.classifier.score(text) < 0.5 for text in junk]) > 0.9


def test_good_text_still_scores_high_and_what_was_shown_low(trained: Trained) -> None:
    assert np.mean([trained.classifier.score(text) > 0.5 for text in good_texts(9000, 100)]) > 0.95
    assert np.mean([trained.classifier.score(text) < 0.5 for text in spam(9500, 60)]) > 0.9


def test_words_alone_do_not_see_it(trained: Trained) -> None:
    words = train_classifier(good_texts(0, 800), spam(5000, 300), Settings(epochs=2, form=False)).classifier
    assert words.form is None
    lines = [UNSEEN["a line over and over"](text, random.Random(1)) for text in good_texts(9000, 60)]
    assert np.mean([words.score(text) < 0.5 for text in lines]) < 0.5
    assert words.description["settings"]["form"] is False


def test_the_form_is_kept_in_the_file(trained: Trained, tmp_path: Path) -> None:
    trained.classifier.write(tmp_path / "model")
    read = Classifier.read(tmp_path / "model")
    texts = [
        *good_texts(9000, 4),
        *(make(text, random.Random(2)) for make in UNSEEN.values() for text in ["a b\nc"]),
    ]
    assert [read.score(text) for text in texts] == [trained.classifier.score(text) for text in texts]
    assert read.form is not None
    assert (tmp_path / "model").stat().st_size < 300_000


def test_with_too_little_good_text_words_alone_decide() -> None:
    few = train_classifier(good_texts(0, 100), spam(5000, 60), Settings(epochs=1)).classifier
    assert few.form is None
    assert usual_forms(np.zeros((LEAST - 1, len(NAMES))), 0) is None


def test_good_text_that_is_all_of_one_form_leaves_room_for_more_of_it() -> None:
    usual = usual_forms(np.tile(np.linspace(0, 1, len(NAMES)), (LEAST, 1)), 0)
    assert usual is not None
    assert usual.likelihood(usual.centre) == 1.0
    assert usual.likelihood(usual.centre + 1) < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_no_more_good_text_is_strange_than_was_promised(seed: int) -> None:
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(5, len(NAMES)))

    def forms(count: int) -> np.ndarray:
        return centres[draw.integers(0, 5, count)] + draw.normal(size=(count, len(NAMES))) * 0.2

    usual = usual_forms(forms(2000), seed)
    assert usual is not None
    strange = np.mean([usual.strangeness(form) > 1 for form in forms(4000)])
    # Five standard deviations of a share of 1% over 4000 documents, with limits set on 1000.
    assert strange < BEYOND + 5 * np.sqrt(BEYOND / 1000 + BEYOND / 4000)
    assert usual.strangeness(np.full(len(NAMES), 40.0)) > 1
    assert usual.likelihood(centres[0]) > 0.9


def test_what_repeats_more_than_good_text_is_strange_wherever_it_stands() -> None:
    draw = np.random.default_rng(0)
    usual = usual_forms(draw.normal(size=(1000, len(NAMES))), 0)
    assert usual is not None
    form = np.zeros(len(NAMES))
    assert usual.strangeness(form) < 1
    for place in range(*REPETITION.indices(len(NAMES))):
        one = form.copy()
        one[place] = 10
        assert usual.strangeness(one) > 1
        one[place] = -3
        assert usual.strangeness(one) < 1, "nor is it strange to repeat less"


def test_measures_say_what_their_names_say() -> None:
    plain = measures("The river runs to the sea.\nA town lies on it.")
    assert plain["repeated lines"] == 0
    assert plain["lines that end a sentence"] == 1
    assert measures("one line\n" * 10)["repeated lines"] > 0.8
    assert measures("12 345")["digits"] == 1
    assert measures("山水之间有人家")["unspaced letters"] == 1
    assert measures("ABCD efgh")["capitals"] == 0.5
    assert measures("aaaaaaaaaaaa")["variety of characters"] == 0
    assert measures("abcdefghijkl")["variety of characters"] > 3


@given(st.text(max_size=80))
def test_every_text_has_a_form_of_finite_numbers(text: str) -> None:
    form = form_of(text, tokens_of(text))
    assert form.shape == (len(NAMES),)
    assert np.isfinite(form).all()
