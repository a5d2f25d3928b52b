"""The filters as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from stoker.data.document import Document
from stoker.data.filters import SIZES, Filters, measured, measures_of
from stoker.data.filters.rule import Rule, judge
from stoker.data.filters.stoker_measures import Measure
from stoker.data.filters.text import Text
from stoker.data.operators.operator import Outcome
from stoker.recipe import Cleaning, Kind, Source


@dataclass(frozen=True)
class Filter:
    """The rules of `data.cleaning` for text of one kind and language: measured first, judged second."""

    filters: Filters
    kind: Kind
    language: str | None
    name: str = "filter"

    @classmethod
    def of(cls, source: Source, settings: Cleaning) -> Filter:
        """The filter of a source."""
        return cls(Filters(settings), source.kind, source.language)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Those that are asked of its text, in order."""
        return self.filters.rules_for(self.kind, self.language)

    @property
    def measures(self) -> tuple[str, ...]:
        """Those that its rules need."""
        return tuple(self._measures)

    @property
    def reasons(self) -> Mapping[str, str]:
        """Those of its rules, and the sizes."""
        return {**SIZES, **{rule.reason: rule.meaning for rule in self.rules}}

    @cached_property
    def _measures(self) -> dict[str, Measure]:
        return measures_of(self.rules)

    def __call__(self, document: Document) -> Outcome:
        """The document, edited where a rule set does so, or the reason to drop it; with all measures either way."""
        text = self.filters.edited(document.text, self.kind)
        if text != document.text:
            document = replace(document, text=text)
        reason = self.filters.of_size(text)
        if reason is not None or not self.rules:
            return Outcome(document, reason)
        measures = measured(Text(text, self.kind, self.language), self._measures)
        return Outcome(document, judge(measures, self.rules), measures)
