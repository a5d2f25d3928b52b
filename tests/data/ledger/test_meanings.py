"""What a reason means is what the rule says that was asked of the document's language."""

from __future__ import annotations

from typing import Any

from stoker.data.ledger.description import Description, OperatorNote, RuleNote, SourceNote
from stoker.data.ledger.meanings import rule_that_dropped


def rule(threshold: float, *languages: str) -> RuleNote:
    return RuleNote(
        reason="few_words",
        measure="words",
        drops="below",
        threshold=threshold,
        source="",
        meaning=f"fewer than {threshold}",
        languages=languages or None,
    )


def row(language: str | None, words: float) -> dict[str, Any]:
    return {
        "source": "web",
        "stage": "filters",
        "reason": "few_words",
        "language": language,
        "measure.words": words,
    }


def test_the_rule_of_another_language_dropped_nothing() -> None:
    operator = OperatorNote("filters", ("words",), {}, (rule(100, "en"), rule(10, "zh")))
    description = Description(0, (SourceNote("web", "prose", None, (operator,)),), (), 1, 1)
    for language, words, threshold in (("zh", 5, 10), ("zh-TW", 5, 10), ("en", 5, 100), ("en", 50, 100)):
        found = rule_that_dropped(row(language, words), description)
        assert found is not None
        assert found.threshold == threshold
    assert rule_that_dropped(row(None, 5), description) is None
