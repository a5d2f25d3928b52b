"""The `data.cleaning` section: what is done to each document, and which are dropped."""

from __future__ import annotations

import math
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from stoker.recipe.decontamination import Decontamination
from stoker.recipe.filter_names import CONTAMINATED, EDITS, LANGUAGE_RULES, RULES, UNSAFE, RuleSet
from stoker.recipe.personal_data import PersonalData
from stoker.recipe.quality import Perplexity, Quality
from stoker.recipe.section import Section


class Cleaning(Section):
    """Cleaning and heuristic filters; what is applied depends on each source's kind."""

    filters: bool = True
    """Drop documents that the filters of their kind reject (each with a reason in the ledger)."""
    rules: tuple[RuleSet, ...] = ("stoker",)
    """Sets of rules that are asked, in this order; all but `stoker` are published ones, for prose."""
    thresholds: dict[str, float] = Field(default={})
    """Thresholds in place of those of the rules, by reason, such as `markup: 0.5`; in the unit of the measure."""
    off: tuple[str, ...] = ()
    """Reasons whose rules are not asked, such as `no_function_words`."""
    personal_data: PersonalData = PersonalData()
    decontaminate: Decontamination = Decontamination()
    unsafe: Literal["off", "note", "drop"] = "note"
    """Measure how thick terms of pornography, gambling and crime for sale stand; `drop` drops what has many."""
    quality: Quality = Quality()
    perplexity: Perplexity = Perplexity()
    minimum_characters: int = Field(default=1, ge=1)
    """Shorter documents are dropped as `too_short`."""
    maximum_document_bytes: int = Field(default=16 * 2**20, ge=1024)
    """Larger documents are dropped as `too_large`; bounds memory, in bytes."""
    script: Literal["keep", "simplified", "traditional"] = "keep"
    """Bring the Chinese of prose and mathematics into one script, phrase by phrase (needs `stoker[chinese]`)."""
    half_width_letters: bool = False
    """Write full-width Latin letters and digits of Chinese text (`ＡＢＣ１`) in their usual width."""
    line_cleaning: bool = True
    """Cut lines that are no part of the text out of prose: furniture of pages, running heads, rows of signs."""
    languages: tuple[str, ...] = ()
    """Tags of the languages to keep in prose, such as `[zh, en]`; not given, a source keeps its `language`."""

    def __hash__(self) -> int:
        """Of what it says: a table has none of its own."""
        return hash(self.model_dump_json())

    def located(self, folder: Path) -> Cleaning:
        """The same with paths that do not depend on where the process stands; `folder` is the recipe's."""
        sections = ("decontaminate", "quality", "perplexity")
        return self.model_copy(update={name: getattr(self, name).located(folder) for name in sections})

    @field_validator("rules", "off")
    @classmethod
    def _named_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"named twice: {', '.join(repeated)}")
        return names

    @field_validator("thresholds", mode="before")
    @classmethod
    def _nothing_under_it(cls, thresholds: Any) -> Any:
        return {} if thresholds is None else thresholds

    @field_validator("thresholds")
    @classmethod
    def _are_finite(cls, thresholds: dict[str, float]) -> dict[str, float]:
        for name, value in thresholds.items():
            if not math.isfinite(value):
                raise ValueError(f"{name}: expected a finite number, got {value}")
        return thresholds

    @model_validator(mode="after")
    def _names_of_rules_in_force(self) -> Cleaning:
        everything = [name for names in RULES.values() for name in names]
        for field, given, others in (
            ("thresholds", tuple(self.thresholds), (*LANGUAGE_RULES, UNSAFE, CONTAMINATED)),
            ("off", self.off, (*LANGUAGE_RULES, *EDITS, UNSAFE, CONTAMINATED)),
        ):
            for name in given:
                _require_known(field, name, (*everything, *others))
                self._require_in_force(field, name)
        return self

    def _require_in_force(self, field: str, name: str) -> None:
        """A threshold or switch of a rule that is not asked would do nothing."""
        if name in LANGUAGE_RULES:
            return
        if name == UNSAFE:
            wanted = None if self.unsafe == "drop" else "data.cleaning.unsafe: drop"
        elif name == CONTAMINATED:
            wanted = None if self.decontaminate.paths else "data.cleaning.decontaminate.paths"
        elif not self.filters:
            wanted = "data.cleaning.filters: true"
        else:
            (own,) = [key for key in RULES if name in RULES[key]] or ["c4"]
            wanted = None if own in self.rules else f"`{own}` in data.cleaning.rules"
        if wanted is not None:
            raise ValueError(f"{field}: `{name}` has no effect without {wanted}")


def _require_known(field: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`?" if near else "docs/filters.md lists them"
        raise ValueError(f"{field}: no rule has the reason `{name}`; {hint}")
