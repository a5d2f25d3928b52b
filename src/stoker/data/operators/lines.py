"""Line cleaning as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.data.document import Document
from stoker.data.line_cleaning import KINDS, clean_lines
from stoker.data.operators.operator import Outcome
from stoker.recipe import Cleaning, Source


@dataclass(frozen=True)
class CleanLines:
    """Cuts lines that are no part of the text out of prose, and counts them."""

    name: str = "lines"
    measures: tuple[str, ...] = tuple(f"lines.{kind}" for kind in KINDS)

    @property
    def reasons(self) -> Mapping[str, str]:
        """None of its own."""
        return {}

    @classmethod
    def of(cls, source: Source, cleaning: Cleaning) -> CleanLines | None:
        """The operator of a source of prose, unless the recipe leaves lines alone."""
        return cls() if source.kind == "prose" and cleaning.line_cleaning else None

    def __call__(self, document: Document) -> Outcome:
        """The document without such lines. The measures are their shares of the lines that are not blank."""
        cleaned = clean_lines(document.text)
        if not cleaned.lines:
            return Outcome(document)
        measures = {f"lines.{kind}": cleaned.removed.get(kind, 0) / cleaned.lines for kind in KINDS}
        if not cleaned.removed:
            return Outcome(document, measures=measures)
        return Outcome(replace(document, text=cleaned.text), measures=measures)
