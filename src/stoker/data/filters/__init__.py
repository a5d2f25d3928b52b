"""Filters: which documents are not worth training on, and why. What is asked depends on the kind of the source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from stoker.data.filters.line_edits import CITATIONS, LINE_EDITS, edited_lines
from stoker.data.filters.published_measures import PUBLISHED_MEASURES
from stoker.data.filters.rule import Rule, adjusted, judge
from stoker.data.filters.rule_sets import RULE_SETS
from stoker.data.filters.stoker_measures import STOKER_MEASURES, Measure
from stoker.data.filters.text import Text
from stoker.recipe import Cleaning, Kind

__all__ = ["MEASURES", "RULE_SETS", "SIZES", "Filters", "measured", "rejection"]

MEASURES = {**STOKER_MEASURES, **PUBLISHED_MEASURES}
"""All measures by name."""
SIZES = {
    "empty": "nothing but blanks is left after cleaning",
    "too_short": "fewer characters than data.cleaning.minimum_characters",
    "too_large": "more bytes than data.cleaning.maximum_document_bytes",
}
"""Reasons that hold for every kind, whether or not filters are on."""


@dataclass(frozen=True)
class Filters:
    """The rules that a recipe puts in force, with the measures they need."""

    settings: Cleaning

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """In the order in which they are asked."""
        if not self.settings.filters:
            return ()
        every = [rule for name in self.settings.rules for rule in RULE_SETS[name]]
        return adjusted(every, self.settings.thresholds, self.settings.off)

    @cached_property
    def edits(self) -> tuple[str, ...]:
        """Names of the edits of lines that are made before anything is measured."""
        if not self.settings.filters or "c4" not in self.settings.rules:
            return ()
        return tuple(name for name in (CITATIONS, *LINE_EDITS) if name not in self.settings.off)

    def rules_for(self, kind: Kind, language: str | None) -> tuple[Rule, ...]:
        """The rules that are asked of text of this kind and language."""
        return tuple(rule for rule in self.rules if rule.concerns(kind, language))

    def edited(self, text: str, kind: Kind) -> str:
        """`text` after the edits, which concern prose alone; empty when nothing is left."""
        return edited_lines(text, self.edits) if self.edits and kind == "prose" else text

    def of_size(self, text: str) -> str | None:
        """The reason to drop `text` for its size alone, or None."""
        if not text or text.isspace():
            return "empty"
        if len(text) < self.settings.minimum_characters:
            return "too_short"
        limit = self.settings.maximum_document_bytes
        too_large = len(text) > limit or (4 * len(text) > limit and len(text.encode()) > limit)
        return "too_large" if too_large else None


def measured(text: Text, measures: dict[str, Measure]) -> dict[str, float]:
    """What `measures` say about `text`, without those that say nothing."""
    return {name: value for name, measure in measures.items() if (value := measure(text)) is not None}


def measures_of(rules: tuple[Rule, ...]) -> dict[str, Measure]:
    """The measures that `rules` compare with their thresholds."""
    return {rule.measure: MEASURES[rule.measure] for rule in rules}


def rejection(text: str, kind: Kind, language: str | None, settings: Cleaning) -> str | None:
    """Why the cleaned `text` is dropped (a reason of a rule, or a key of `SIZES`), or None when it is kept."""
    filters = Filters(settings)
    text = filters.edited(text, kind)
    if (reason := filters.of_size(text)) is not None:
        return reason
    rules = filters.rules_for(kind, language)
    return judge(measured(Text(text, kind, language), measures_of(rules)), rules)
