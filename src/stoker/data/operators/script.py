"""The script of Chinese as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.data.document import Document
from stoker.data.operators.operator import Outcome
from stoker.data.script.conversion import Script, converted, half_width, require_converter
from stoker.data.script.detection import scripts_of
from stoker.recipe import Cleaning, Source


@dataclass(frozen=True)
class ChineseScript:
    """Brings Chinese into one script and its Latin letters to one width, where the recipe says so.

    Code keeps its characters: names and strings mean themselves.
    """

    wanted: Script | None
    """None keeps the script that each text has."""
    half_width_letters: bool
    name: str = "script"
    measures: tuple[str, ...] = ("script.traditional",)

    @property
    def reasons(self) -> Mapping[str, str]:
        """None of its own."""
        return {}

    @classmethod
    def of(cls, source: Source, cleaning: Cleaning) -> ChineseScript | None:
        """The operator of a source that is not code. Raises `BadInput` where OpenCC is needed and not there."""
        if source.kind == "code":
            return None
        wanted = None if cleaning.script == "keep" else cleaning.script
        if wanted is not None:
            require_converter(wanted)
        return cls(wanted, cleaning.half_width_letters)

    def __call__(self, document: Document) -> Outcome:
        """The document in the wanted script. The measure is of the text as it came, where it tells its script."""
        found = scripts_of(document.text)
        if not found.han:
            return Outcome(document)
        text = document.text if self.wanted is None else converted(document.text, self.wanted, found)
        if self.half_width_letters and not found.is_japanese:
            text = half_width(text)
        changed = document if text == document.text else replace(document, text=text)
        tells = found.simplified + found.traditional
        return Outcome(changed, measures={"script.traditional": found.traditional_share} if tells else {})
