"""Masking of personal data as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.data.document import Document
from stoker.data.operators.operator import Outcome
from stoker.data.personal_data import mask
from stoker.recipe import Cleaning, Source
from stoker.recipe.personal_data import PersonalKind


@dataclass(frozen=True)
class MaskPersonalData:
    """Replaces personal data by placeholders and counts it; drops nothing."""

    kinds: frozenset[PersonalKind]
    name: str = "personal_data"

    @classmethod
    def of(cls, source: Source, settings: Cleaning) -> MaskPersonalData | None:
        """The operator of a source, where anything is to be masked in its kind of text."""
        section = settings.personal_data
        kinds = section.mask_in_code if source.kind == "code" else section.mask
        return cls(frozenset(kinds)) if kinds else None

    @property
    def measures(self) -> tuple[str, ...]:
        """How many of each kind were masked."""
        return tuple(f"{self.name}.{kind}" for kind in sorted(self.kinds))

    @property
    def reasons(self) -> Mapping[str, str]:
        """None."""
        return {}

    def __call__(self, document: Document) -> Outcome:
        """The document with placeholders."""
        text, counts = mask(document.text, self.kinds)
        measures = {f"{self.name}.{kind}": float(count) for kind, count in counts.items()}
        return Outcome(document if text == document.text else replace(document, text=text), None, measures)
