"""The filters as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.data.document import Document
from stoker.data.filters import REASONS, rejection
from stoker.data.operators.operator import Outcome
from stoker.recipe import Cleaning


@dataclass(frozen=True)
class Filter:
    """`stoker.data.filters.rejection` by the document's kind and language."""

    settings: Cleaning
    name: str = "filter"
    measures: tuple[str, ...] = ()

    @property
    def reasons(self) -> Mapping[str, str]:
        """Those of the filters."""
        return REASONS

    def __call__(self, document: Document) -> Outcome:
        """The document as it is, or the reason to drop it."""
        return Outcome(document, rejection(document.text, document.kind, document.language, self.settings))
