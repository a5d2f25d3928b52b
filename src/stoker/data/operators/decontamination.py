"""Decontamination as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stoker.data.decontamination import CONTAMINATED, EvaluationIndex, evaluation_index
from stoker.data.document import Document
from stoker.data.filters.rule import Rule, adjusted, judge
from stoker.data.minhash import token_hashes
from stoker.data.operators.operator import Outcome
from stoker.recipe import Cleaning


@dataclass(frozen=True)
class Decontaminate:
    """Drops documents that hold evaluation items, or cuts the lines out in which these stand."""

    index: EvaluationIndex
    cuts: bool
    rules: tuple[Rule, ...]
    name: str = "decontamination"
    measures: tuple[str, ...] = (CONTAMINATED.measure, "decontamination.item")

    @classmethod
    def of(cls, settings: Cleaning) -> Decontaminate | None:
        """The operator of a recipe that names evaluation sets; their paths are absolute."""
        section = settings.decontaminate
        if not section.paths:
            return None
        rules = adjusted([CONTAMINATED], settings.thresholds, settings.off)
        return cls(evaluation_index(section), section.action == "cut", rules)

    @property
    def reasons(self) -> Mapping[str, str]:
        """`contaminated`."""
        return {rule.reason: rule.meaning for rule in self.rules}

    def __call__(self, document: Document) -> Outcome:
        """The document, without lines of evaluation items where these are cut; or the reason to drop it."""
        found = self.index.search(document.text)
        if found is None:
            return Outcome(document, None, {CONTAMINATED.measure: 0.0})
        measures = {CONTAMINATED.measure: found.overlap, "decontamination.item": float(found.item)}
        reason = judge(measures, self.rules)
        detail = self.index.name_of(found.item)
        if reason is not None and self.cuts:
            return Outcome(
                replace(document, text=without_marked_lines(document.text, found.tokens)), None, measures, detail
            )
        return Outcome(document, reason, measures, detail)


def without_marked_lines(text: str, marked: npt.NDArray[np.bool_]) -> str:
    """`text` without the lines of which a token is marked [tokens]."""
    kept, first = [], 0
    for line in text.split("\n"):
        last = first + len(token_hashes(line, symbols=False))
        if not marked[first:last].any():
            kept.append(line)
        first = last
    return "\n".join(kept).strip("\n")
