"""The model of characters as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.data.document import Document
from stoker.data.operators.operator import Outcome
from stoker.data.quality.characters import BITS, CharacterModel, loaded_model
from stoker.recipe import Cleaning, Source


@dataclass(frozen=True)
class MeasurePerplexity:
    """Measures how surprising documents are; what is too much is known only when all of a group are measured."""

    model: CharacterModel
    name: str = "perplexity"
    measures: tuple[str, ...] = (BITS,)

    @classmethod
    def of(cls, source: Source, cleaning: Cleaning) -> MeasurePerplexity | None:
        """The operator of a source of a kind that is measured. Raises `BadInput` where the model cannot be read."""
        section = cleaning.perplexity
        if section.model is None or source.kind not in section.kinds:
            return None
        return cls(loaded_model(section.model))

    @property
    def reasons(self) -> Mapping[str, str]:
        """None of its own."""
        return {}

    def __call__(self, document: Document) -> Outcome:
        """The document as it is."""
        return Outcome(document, None, {BITS: self.model.bits_per_character(document.text)})
