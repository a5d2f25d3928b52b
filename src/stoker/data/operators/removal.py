"""Deletes what a source's own pattern matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.data.document import Document
from stoker.data.operators.operator import Outcome
from stoker.recipe import Source


@dataclass(frozen=True)
class Remove:
    """`remove_pattern` of a source."""

    pattern: re.Pattern[str]
    name: str = "remove"
    measures: tuple[str, ...] = ("remove.removed",)

    @property
    def reasons(self) -> Mapping[str, str]:
        """None of its own."""
        return {}

    @classmethod
    def of(cls, source: Source) -> Remove | None:
        """The operator of a source that has a pattern."""
        return None if source.remove_pattern is None else cls(re.compile(source.remove_pattern))

    def __call__(self, document: Document) -> Outcome:
        """The document without what matches, and the share of its characters that this is."""
        text = self.pattern.sub("", document.text)
        shorter = 1 - len(text) / len(document.text)
        return Outcome(replace(document, text=text), measures={"remove.removed": shorter})
