"""The operator `language`."""

from __future__ import annotations

import pytest

from stoker.data.document import Document
from stoker.data.operators.language import IdentifyLanguage
from stoker.errors import BadInput
from stoker.recipe import Cleaning, Source

CHINESE = "今天的天气很好，我们一起去公园散步，看看湖边的花和树，然后回家吃饭。孩子们跑来跑去，玩得非常高兴。"
ENGLISH = "The weather is fine today, so we went for a walk in the park and looked at the flowers by the lake."
FRENCH = "Il fait beau aujourd'hui, alors nous sommes allés nous promener dans le parc pour regarder les fleurs."


def document(text: str, language: str | None = None) -> Document:
    return Document("s", "prose", language, "1", "f", "line 1", text)


def operator(kind: str = "prose", language: str | None = None, **settings: object) -> IdentifyLanguage | None:
    source = Source.model_validate({"name": "s", "paths": ["x"], "kind": kind, "language": language})
    return IdentifyLanguage.of(source, Cleaning.model_validate(settings))


@pytest.mark.parametrize(
    ("text", "language"),
    [(CHINESE, "zh"), (ENGLISH, "en"), (FRENCH, "fr"), (f"{CHINESE}{ENGLISH}", "mixed"), ("1, 2, 3: 4!", None)],
)
def test_a_document_without_language_gets_the_one_that_is_found(text: str, language: str | None) -> None:
    identified = operator()
    assert identified is not None
    outcome = identified(document(text))
    assert (outcome.document.language, outcome.reason) == (language, None)
    assert set(outcome.measures) <= set(identified.measures)
    shares = [value for name, value in outcome.measures.items() if "share" in name]
    assert language is None or sum(shares) == pytest.approx(1)


def test_the_given_language_stays_where_it_may_be_right() -> None:
    identified = operator(language="en")
    assert identified is not None
    given = document(f"{ENGLISH} {CHINESE}", "en")
    assert identified(given).document is given


@pytest.mark.parametrize(
    ("text", "given", "language"),
    [
        (CHINESE, "en", "zh"),
        (FRENCH, "en-GB", "fr"),
        (f"{ENGLISH} {ENGLISH}", "zh-CN", "en"),
        (ENGLISH, "en-GB", "en-GB"),
        (FRENCH[:40], "en", "en"),  # too short to be certain
        (f"{CHINESE}{ENGLISH}", "fr", "fr"),
        (FRENCH, "tlh", "tlh"),
    ],
)
def test_the_language_of_the_source_gives_way_to_one_that_is_certain(text: str, given: str, language: str) -> None:
    identified = operator(language=given, languages=["zh", "en", "fr"])
    assert identified is not None
    assert identified(document(text, given)).document.language == language


@pytest.mark.parametrize(
    ("text", "language", "languages", "reason"),
    [
        (FRENCH, "en", [], "wrong_language"),
        (CHINESE, "en", [], "wrong_language"),
        (ENGLISH, "en-GB", [], None),
        (f"{CHINESE}{ENGLISH}", "zh", [], None),
        (FRENCH[:40], "en", [], None),  # too short to drop anything for
        (FRENCH, None, [], None),
        (FRENCH, None, ["zh", "en"], "wrong_language"),
        (FRENCH, "fr", ["zh", "en"], "wrong_language"),
        (CHINESE, None, ["zh", "en"], None),
        (FRENCH, "tlh", [], None),  # nothing is known of this language
    ],
)
def test_text_in_another_language_than_wanted_is_dropped(
    text: str, language: str | None, languages: list[str], reason: str | None
) -> None:
    identified = operator(language=language, languages=languages)
    assert identified is not None
    assert identified(document(text, language)).reason == reason


def test_the_rule_has_a_threshold_and_a_switch() -> None:
    off = operator(language="en", off=["wrong_language"])
    strict = operator(language="en", thresholds={"wrong_language": 0.9})
    assert off is not None
    assert strict is not None
    half = document(ENGLISH * 4 + FRENCH * 4, "en")
    assert off(document(FRENCH, "en")).reason is None
    assert off(document(FRENCH, "en")).measures["language.wanted"] < 0.2, "measured all the same"
    assert strict(half).reason == "wrong_language"


def test_code_has_no_language_and_mathematics_is_never_dropped_for_it() -> None:
    assert operator(kind="code") is None
    mathematics = operator(kind="mathematics", language="en")
    assert mathematics is not None
    assert mathematics(document(FRENCH, "en")).reason is None


def test_a_language_that_nothing_identifies_is_told() -> None:
    with pytest.raises(BadInput, match=r"tlh.*known are.*zh"):
        operator(languages=["zh", "tlh"])
