"""Cleaning as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.data.cleaning import clean
from stoker.data.document import Document
from stoker.data.operators.operator import Outcome


@dataclass(frozen=True)
class Clean:
    """`stoker.data.cleaning.clean` by the document's kind."""

    name: str = "clean"
    measures: tuple[str, ...] = ()

    @property
    def reasons(self) -> Mapping[str, str]:
        """None of its own."""
        return {}

    def __call__(self, document: Document) -> Outcome:
        """The cleaned document."""
        text = clean(document.text, document.kind)
        return Outcome(document if text == document.text else replace(document, text=text))
