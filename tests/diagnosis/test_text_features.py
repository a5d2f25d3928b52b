"""What sets the text of suspected passages apart from that of others."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.diagnosis.text_at import Passage
from stoker.diagnosis.text_features import contrasts
from tests.diagnosis.planted_causes import HAN, text_of


def passages(texts: list[str], source: str = "english", respelled: float = 0.0) -> list[Passage]:
    return [Passage(step, step, 0, source, step, text, respelled) for step, text in enumerate(texts)]


USUAL = passages([text_of("english", seed) for seed in range(60)])
PLAIN = text_of("english", 1000)


def telling(text: str, respelled: float = 0.0) -> set[str]:
    found = contrasts(passages([text, PLAIN], respelled=respelled), USUAL)
    return {name for name, contrast in found.items() if contrast.score > 2}


def test_text_like_that_of_other_steps_stands_out_in_nothing() -> None:
    assert telling(text_of("english", 2000)) == set()


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("<div class='a'>river</div>&nbsp;<p>stone</p> " * 6, "markup"),
        (PLAIN.replace("e", "\N{REPLACEMENT CHARACTER}"), "damage"),
        ("cafÃ© maÃ±ana â€œnoâ€\x9d " * 8, "damage"),
        (HAN * 4, "script"),
        ("ystävä käsi syksy kieli sana järvi matka työ " * 4, "surprise"),
        (PLAIN[:20] * 12, "repetition"),
    ],
    ids=["html", "lost-characters", "mojibake", "chinese", "finnish", "repeated"],
)
def test_bad_text_stands_out_in_what_is_wrong_with_it(text: str, feature: str) -> None:
    assert feature in telling(text)


def test_tokens_of_another_tokenizer_stand_out() -> None:
    assert telling(text_of("english", 3000), respelled=0.5) == {"respelling"}


def test_figures_are_of_no_language() -> None:
    draw = np.random.default_rng(0)
    text = " ".join(f"{word} {draw.integers(10**5)}.{draw.integers(100):02d};" for word in PLAIN.split())
    assert "surprise" not in telling(text)


def test_what_a_source_always_has_is_not_held_against_it() -> None:
    tagged = [f"<p>{text_of('english', seed)}</p><br/>" for seed in range(60)]
    found = contrasts(passages(tagged[:4], "web"), [*USUAL, *passages(tagged[4:], "web")])
    assert all(contrast.score <= 2 for contrast in found.values())


def test_one_character_that_was_cut_is_no_damage() -> None:
    assert "damage" not in telling(PLAIN[:18] + "\N{REPLACEMENT CHARACTER}" + PLAIN[18:36])
