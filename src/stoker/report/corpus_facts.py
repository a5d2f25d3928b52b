"""Where the text came from and what became of it: funnel, sources, licences, passes over the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stoker.data.ledger.falls import CUT_INSIDE
from stoker.report.run_facts import RunFacts
from stoker.wording import percent, words

_GROUP_OF_STAGE = {
    "fault": "faults",
    "exact_duplicate": "exact duplicates",
    "near_duplicate": "near-duplicates",
    "repeated_passages": "near-duplicates",
    "in_earlier_corpus": "near-duplicates",
    "held_out_duplicate": "held-out duplicates",
    "held_out": "held out",
    "kept": "kept",
}
_FILTERED = "filtered"
"""The group of every other stage: an operator that drops documents."""
GROUPS = (_FILTERED, "exact duplicates", "near-duplicates", "held-out duplicates", "held out", "kept")
ALL = "all sources"
_FALL = {
    False: "{reason} takes {share} of the documents in {group} that reach it and {others} of the others",
    True: "{reason} cuts something out of {share} of the documents in {group} that stay and {others} of the others",
}
"""What is said of a filter, and of what only cuts."""


@dataclass(frozen=True)
class Stage:
    """One line of a funnel: documents that left here, and why."""

    group: str
    reason: str
    documents: int
    bytes: int
    before: float
    """Share of the documents read that were still there before it."""
    share: float
    """Share of the documents read that it took, or kept."""


@dataclass
class Funnel:
    """What became of the documents of one source."""

    source: str
    documents: int
    """Documents read."""
    bytes: int
    faults: int = 0
    stages: list[Stage] = field(default_factory=list)
    by_group: dict[str, int] = field(default_factory=dict)

    @property
    def kept_share(self) -> float:
        """Share of the documents read that are trained on."""
        return self.by_group.get("kept", 0) / self.documents if self.documents else 0.0

    @property
    def unexplained(self) -> int:
        """Documents read that no stage accounts for; anything but 0 is a defect of the corpus."""
        return self.documents - sum(self.by_group.values())


@dataclass(frozen=True)
class SourceText:
    """One source as it was prepared and trained on."""

    name: str
    kind: str
    language: str
    licence: str
    documents: int
    tokens: int
    bytes: int
    characters: int
    held_out_documents: int
    held_out_tokens: int
    share: float
    trained_tokens: float
    trained_share: float | None

    @property
    def passes(self) -> float | None:
        """How often the source's tokens were seen, on average."""
        return self.trained_tokens / self.tokens if self.tokens else None


def funnels(facts: RunFacts) -> list[Funnel]:
    """A funnel for each source; with several, one of all of them first."""
    rows = [row for row in facts.corpus.get("funnel") or [] if isinstance(row, dict)]
    sources = list(dict.fromkeys(str(row.get("source")) for row in rows))
    found = [_funnel(source, [row for row in rows if str(row.get("source")) == source]) for source in sources]
    return [_funnel(ALL, _summed(rows)), *found] if len(found) > 1 else found


def _funnel(source: str, rows: list[dict[str, Any]]) -> Funnel:
    read = next((row for row in rows if row.get("stage") == "read"), {})
    funnel = Funnel(source, _whole(read, "documents"), _whole(read, "bytes"))
    left = funnel.documents
    for row in rows:
        stage, documents = str(row.get("stage")), _whole(row, "documents")
        group = _GROUP_OF_STAGE.get(stage, _FILTERED)
        if stage == "read":
            continue
        if stage == "fault":
            funnel.faults += documents
        else:
            funnel.by_group[group] = funnel.by_group.get(group, 0) + documents
        whole = max(funnel.documents, 1)
        reason = words(str(row.get("reason") or ""))
        before = 0.0 if stage == "fault" else left / whole
        if documents:
            funnel.stages.append(
                Stage(group, reason, documents, _whole(row, "bytes"), before, documents / whole if before else 0.0)
            )
        if stage != "fault":
            left -= documents
    return funnel


def _summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all sources, added up by stage and reason, in the order of a funnel."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (str(row.get("stage")), str(row.get("reason") or ""))
        entry = sums.setdefault(key, {"stage": key[0], "reason": key[1], "documents": 0, "bytes": 0})
        entry["documents"] += _whole(row, "documents")
        entry["bytes"] += _whole(row, "bytes")
    order = ["read", "fault", "filter", "held_out", "held_out_duplicate", "exact_duplicate", "near_duplicate"]
    place = {stage: index for index, stage in enumerate(order)}
    operators = place["filter"]
    return sorted(sums.values(), key=lambda row: (row["stage"] == "kept", place.get(row["stage"], operators)))


def falls(facts: RunFacts) -> list[str]:
    """A sentence for each group of text that loses far more to a filter than others: `stoker data funnel`."""
    found = facts.corpus.get("falls")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return [
        _FALL[row.get("stage") == CUT_INSIDE].format(
            reason=words(str(row.get("reason"))),
            share=percent(_share(row.get("share"))),
            group=row.get("group"),
            others=percent(_share(row.get("others_share"))),
        )
        for row in rows
    ]


def _share(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def source_texts(facts: RunFacts) -> list[SourceText]:
    """The prepared sources with how much of each the run was trained on."""
    sources = [source for source in facts.corpus.get("sources") or [] if isinstance(source, dict)]
    names = [str(source.get("name")) for source in sources]
    trained = {name: float(np.nansum(facts.numbers(f"tokens_by_source.{name}"))) for name in names}
    all_trained = sum(trained.values())
    splits = [source.get("splits") or {} for source in sources]
    all_tokens = sum(_whole(split.get("train") or {}, "tokens") for split in splits)
    found = []
    for name, source, split in zip(names, sources, splits, strict=True):
        train, held_out = split.get("train") or {}, split.get("held_out") or {}
        tokens = _whole(train, "tokens")
        found.append(
            SourceText(
                name=name,
                kind=str(source.get("kind") or ""),
                language=str(source.get("language") or ""),
                licence=_licence(source.get("licence")),
                documents=_whole(train, "documents"),
                tokens=tokens,
                bytes=_whole(train, "bytes"),
                characters=_whole(train, "characters"),
                held_out_documents=_whole(held_out, "documents"),
                held_out_tokens=_whole(held_out, "tokens"),
                share=tokens / all_tokens if all_tokens else 0.0,
                trained_tokens=trained[name],
                trained_share=trained[name] / all_trained if all_trained else None,
            )
        )
    return found


def _licence(licence: Any) -> str:
    if isinstance(licence, dict):
        return "; ".join(f"{key}: {value}" for key, value in licence.items())
    if isinstance(licence, list):
        return "; ".join(map(str, licence))
    return str(licence) if licence else "not stated"


def _whole(row: dict[str, Any], key: str) -> int:
    value = row.get(key)
    return int(value) if isinstance(value, int | float) else 0
