"""What a ledger says of itself: its size, and what each source's documents went through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from stoker.data.ledger.schema import FORMAT

if TYPE_CHECKING:  # a ledger is read without loading what the operators need
    from stoker.data.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class RuleNote:
    """A rule as it was when the corpus was prepared: what it held a measure against."""

    reason: str
    """The code under which documents that it drops stand in the ledger."""
    measure: str
    drops: Literal["above", "below"]
    """On which side of the threshold documents are dropped; one that equals it is kept."""
    threshold: float
    source: str
    """Where the figure is from."""
    meaning: str
    """What is wrong with the document, in a sentence."""
    languages: tuple[str, ...] | None = None
    """Of which alone it was asked, each document by its own language; None where it was asked whatever that is."""

    def concerns(self, language: str | None) -> bool:
        """Whether it was asked of text in this language (`zh` covers `zh-TW`)."""
        if self.languages is None:
            return True
        return language is not None and re.split("[-_]", language.lower())[0] in self.languages

    def rejects(self, value: float | None) -> bool:
        """Whether a document with this measure is dropped; never for lack of the measure."""
        if value is None:
            return False
        return value > self.threshold if self.drops == "above" else value < self.threshold


@dataclass(frozen=True, slots=True)
class OperatorNote:
    """An operator as it was when the corpus was prepared."""

    name: str
    measures: tuple[str, ...]
    reasons: Mapping[str, str]
    """Reason codes and their meaning."""
    rules: tuple[RuleNote, ...]
    """Thresholds that it held its measures against, in the order in which it asked."""

    @classmethod
    def of(cls, operator: Operator) -> OperatorNote:
        """The note of an operator; one without `rules` has no thresholds that could be moved."""
        rules = tuple(
            RuleNote(
                rule.reason, rule.measure, rule.drops, rule.threshold, rule.source, rule.meaning, rule.languages
            )
            for rule in getattr(operator, "rules", ())
        )
        return cls(operator.name, tuple(operator.measures), dict(operator.reasons), rules)


@dataclass(frozen=True, slots=True)
class SourceNote:
    """A source, and the operators of its documents in order."""

    name: str
    kind: str
    language: str | None
    operators: tuple[OperatorNote, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where the documents of a split stand among the places."""

    source: str
    split: str
    first: int
    documents: int


@dataclass(frozen=True, slots=True)
class Description:
    """All of `ledger.json`."""

    rows: int
    sources: tuple[SourceNote, ...]
    stretches: tuple[Stretch, ...]
    part_rows: int
    group_rows: int
    format: int = FORMAT

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of all measures, in the order of sources and operators."""
        return measures_of(self.sources)

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of all operators, each once, in an order that no chain contradicts."""
        return stages_of(self.sources)

    def rules(self) -> Iterable[tuple[SourceNote, OperatorNote, RuleNote]]:
        """Every rule of every source."""
        return ((source, one, rule) for source in self.sources for one in source.operators for rule in one.rules)

    def as_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return asdict(self)

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Description:
        """What `as_json` gave. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        if written["rows"] < 0 or written["part_rows"] < 1 or written["group_rows"] < 1:
            raise ValueError("a number of rows in it is impossible")
        return cls(
            **{
                **written,
                "sources": tuple(_source(one) for one in written["sources"]),
                "stretches": tuple(Stretch(**one) for one in written["stretches"]),
            }
        )


def measures_of(sources: Sequence[SourceNote]) -> tuple[str, ...]:
    """Names of all measures of some sources, each once."""
    return tuple(dict.fromkeys(name for source in sources for one in source.operators for name in one.measures))


def stages_of(sources: Sequence[SourceNote]) -> tuple[str, ...]:
    """Names of all operators, each once, in an order that no source's chain contradicts."""
    order: list[str] = []
    for source in sources:
        place = 0
        for one in source.operators:
            if one.name in order:
                place = max(place, order.index(one.name) + 1)
            else:
                order.insert(place, one.name)
                place += 1
    return tuple(order)


def _source(written: Mapping[str, Any]) -> SourceNote:
    operators = tuple(_operator(one) for one in written["operators"])
    return SourceNote(written["name"], written["kind"], written["language"], operators)


def _rule(written: Mapping[str, Any]) -> RuleNote:
    languages = written.get("languages")  # a ledger of before had every rule asked of all documents of its source
    return RuleNote(**{**written, "languages": None if languages is None else tuple(languages)})


def _operator(written: Mapping[str, Any]) -> OperatorNote:
    rules = tuple(_rule(one) for one in written["rules"])
    return OperatorNote(written["name"], tuple(written["measures"]), dict(written["reasons"]), rules)
