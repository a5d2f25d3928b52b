"""The filters as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from stoker.data.document import Document
from stoker.data.filters import SIZES, Filters, measured, measures_of
from stoker.data.filters.rule import Rule, judge, primary_tag
from stoker.data.filters.stoker_measures import Measure
from stoker.data.filters.text import Text
from stoker.data.operators.operator import Outcome
from stoker.recipe import Cleaning, Kind, Source


@dataclass(frozen=True)
class Filter:
    """The rules of `data.cleaning` for text of one kind, each document by its language: measured, then judged."""

    filters: Filters
    kind: Kind
    name: str = "filter"

    @classmethod
    def of(cls, source: Source, settings: Cleaning) -> Filter:
        """The filter of a source."""
        return cls(Filters(settings), source.kind)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Those that are asked of text of its kind in any language, in order."""
        return tuple(rule for rule in self.filters.rules if self.kind in rule.kinds)

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """Those that its rules need."""
        return tuple(measures_of(self.rules))

    @property
    def reasons(self) -> Mapping[str, str]:
        """Those of its rules, and the sizes."""
        return {**SIZES, **{rule.reason: rule.meaning for rule in self.rules}}

    @cached_property
    def _by_language(self) -> dict[str | None, tuple[tuple[Rule, ...], dict[str, Measure]]]:
        return {}

    def rules_for(self, language: str | None) -> tuple[tuple[Rule, ...], dict[str, Measure]]:
        """The rules that are asked of text in a language, and the measures that they need."""
        tag = primary_tag(language)
        if tag not in self._by_language:
            rules = self.filters.rules_for(self.kind, tag)
            self._by_language[tag] = (rules, measures_of(rules))
        return self._by_language[tag]

    def __call__(self, document: Document) -> Outcome:
        """The document, edited where a rule set does so, or the reason to drop it; with all measures either way."""
        text = self.filters.edited(document.text, self.kind)
        if text != document.text:
            document = replace(document, text=text)
        reason = self.filters.of_size(text)
        rules, measures = self.rules_for(document.language)
        if reason is not None or not rules:
            return Outcome(document, reason)
        found = measured(Text(text, self.kind, document.language), measures)
        return Outcome(document, judge(found, rules), found)
