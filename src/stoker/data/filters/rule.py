"""A rule of a filter as data: a measure, a threshold, and for which text it is asked.

Measures are taken first and compared second, and are kept in the ledger whether or not a rule drops the document;
so what another threshold would change is answered without reading the text again. A measure that says nothing
about a text (too short, another script) is absent, and rules about it do not drop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from stoker.recipe import Kind

OWN = "own measurement"
"""Source of a rule whose threshold was set on text of ours and is not taken from a publication."""
EVERY_KIND: tuple[Kind, ...] = ("prose", "code", "mathematics", "dialogue")


@dataclass(frozen=True, slots=True)
class Rule:
    """Drops a document whose measure is beyond a threshold."""

    reason: str
    """The code under which a document that it drops stands in the ledger."""
    measure: str
    """Name of a measure, such as `filter.letter_share`."""
    drops: Literal["above", "below"]
    """On which side of the threshold documents are dropped; one that equals it is kept."""
    threshold: float
    """In the unit of the measure."""
    kinds: tuple[Kind, ...]
    """Of text, of which it is asked."""
    languages: tuple[str, ...] | None
    """Language tags of which it is asked (`zh` covers `zh-TW`); None asks it whatever the language is."""
    source: str
    """The publication that the figure is from, or `OWN`."""
    meaning: str
    """What is wrong with the document, in a sentence."""

    def concerns(self, kind: Kind, language: str | None) -> bool:
        """Whether it is asked of text of this kind and language."""
        return kind in self.kinds and (self.languages is None or primary_tag(language) in self.languages)

    def rejects(self, measures: Mapping[str, float]) -> bool:
        """Whether a document with these measures is dropped."""
        value = measures.get(self.measure)
        if value is None:
            return False
        return value > self.threshold if self.drops == "above" else value < self.threshold


def judge(measures: Mapping[str, float], rules: Iterable[Rule]) -> str | None:
    """The reason of the first of `rules` that rejects a document with these measures, or None."""
    for rule in rules:
        if rule.rejects(measures):
            return rule.reason
    return None


def adjusted(rules: Iterable[Rule], thresholds: Mapping[str, float], off: Collection[str]) -> tuple[Rule, ...]:
    """`rules` with the `thresholds` of the given reasons, and without the reasons that are `off`."""
    return tuple(
        replace(rule, threshold=thresholds.get(rule.reason, rule.threshold))
        for rule in rules
        if rule.reason not in off
    )


def primary_tag(language: str | None) -> str | None:
    """`zh` of `zh-TW` or `zh_Hant`; None of None."""
    return None if language is None else language.lower().replace("_", "-").partition("-")[0]
