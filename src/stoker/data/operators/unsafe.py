"""The measure of unsafe content as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.data.document import Document
from stoker.data.filters.rule import Rule, adjusted, judge
from stoker.data.filters.text import Text
from stoker.data.operators.operator import Outcome
from stoker.data.unsafe import UNSAFE, unsafe_density
from stoker.recipe import Cleaning


@dataclass(frozen=True)
class NoteUnsafe:
    """Measures how unsafe a document is, and drops it where the recipe says so."""

    rules: tuple[Rule, ...]
    """None where the measure is only noted."""
    name: str = "unsafe"
    measures: tuple[str, ...] = (UNSAFE.measure,)

    @classmethod
    def of(cls, settings: Cleaning) -> NoteUnsafe | None:
        """The operator of a recipe, unless it is off."""
        if settings.unsafe == "off":
            return None
        return cls(adjusted([UNSAFE], settings.thresholds, settings.off) if settings.unsafe == "drop" else ())

    @property
    def reasons(self) -> Mapping[str, str]:
        """`unsafe`, where documents are dropped."""
        return {rule.reason: rule.meaning for rule in self.rules}

    def __call__(self, document: Document) -> Outcome:
        """The document as it is, or the reason to drop it."""
        measures = {UNSAFE.measure: unsafe_density(Text(document.text, document.kind, document.language))}
        return Outcome(document, judge(measures, self.rules), measures)
