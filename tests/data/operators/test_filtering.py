"""The operator `filter`: each document is asked the rules of its own language."""

from __future__ import annotations

import random

import pytest

from stoker.data.document import Document
from stoker.data.filters import RULE_SETS
from stoker.data.ledger.description import OperatorNote
from stoker.data.operators import operators_of
from stoker.data.operators.chain import Judged, judge
from stoker.data.operators.filtering import Filter
from stoker.recipe import Cleaning, Source
from tests.data.operators.test_language import CHINESE, ENGLISH

_RULES = (*RULE_SETS["stoker"], *RULE_SETS["gopher"])
ENGLISH_RULES = {rule.measure for rule in _RULES if rule.languages == ("en",)} - {
    rule.measure for rule in _RULES if rule.languages != ("en",)
}
"""Measures that rules of English alone need."""
KEYWORDS = "cheap shoes leather boots discount brands sandals trainers outlet sneakers shipping size colour sale "


def keywords(count: int) -> str:
    """A long text of English words without one of those that hold sentences together."""
    return " ".join(random.Random(5).choices(KEYWORDS.split(), k=count))


def chain(language: str | None, **cleaning: object) -> Judgement:
    source = Source(name="s", paths=("x",), language=language)
    return Judgement(source, Cleaning.model_validate(cleaning))


class Judgement:
    def __init__(self, source: Source, cleaning: Cleaning) -> None:
        self._operators, self._source = operators_of(source, cleaning), source

    def __call__(self, text: str) -> Judged:
        document = Document("s", "prose", self._source.language, "1", "f", "line 1", text)
        return judge(document, self._operators)


OFF = ("repeated_phrases", "commonest_phrase", "repeated_lines")
VARIED = "".join(f"{CHINESE}第{number}段说的是另外一件事。" for number in range(40))
WALKS = " ".join(f"{ENGLISH} That was walk number {number} of the year." for number in range(20))


@pytest.mark.parametrize("language", [None, "en", "zh"])
def test_rules_of_a_language_are_asked_of_documents_in_it_whatever_the_source_says(language: str | None) -> None:
    own = chain(language, languages=["zh", "en"], off=OFF, rules=["stoker", "gopher"])
    english, chinese = own(WALKS), own(VARIED)
    assert ENGLISH_RULES
    assert chinese.reason is None
    assert (english.document.language, chinese.document.language) == ("en", "zh")
    assert ENGLISH_RULES & set(english.measures) == ENGLISH_RULES
    assert ENGLISH_RULES & set(chinese.measures) == set()


def test_a_mixed_source_loses_its_english_keywords_and_keeps_its_chinese() -> None:
    own = chain(None, off=OFF)
    dropped, kept = own(keywords(600)), own(VARIED)
    assert (dropped.document.language, dropped.reason) == ("en", "no_function_words")
    assert kept.reason is None


def test_the_ledger_knows_the_rules_of_every_language_of_a_source() -> None:
    note = OperatorNote.of(Filter.of(Source(name="s", paths=("x",), language="zh"), Cleaning()))
    assert "no_function_words" in {rule.reason for rule in note.rules}
    assert "filter.function_word_share" in note.measures
