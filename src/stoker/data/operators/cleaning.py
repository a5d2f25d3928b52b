"""Cleaning as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.data.cleaning import cleaned
from stoker.data.document import Document
from stoker.data.operators.operator import Outcome


@dataclass(frozen=True)
class Clean:
    """`stoker.data.cleaning.cleaned` by the document's kind."""

    name: str = "clean"
    measures: tuple[str, ...] = ("clean.reread", "clean.removed")

    @property
    def reasons(self) -> Mapping[str, str]:
        """None of its own."""
        return {}

    def __call__(self, document: Document) -> Outcome:
        """The cleaned document; whether some of it was misread (1 or 0), and the share of characters that went."""
        found = cleaned(document.text, document.kind)
        shorter = max(0, len(document.text) - len(found.text)) / len(document.text)
        measures = {"clean.reread": float(found.reread), "clean.removed": shorter}
        return Outcome(
            document if found.text == document.text else replace(document, text=found.text), measures=measures
        )
