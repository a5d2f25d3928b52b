"""Ledgers written by hand: rows as they are given, in parts and groups of a few rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stoker.data.ledger import Ledger
from stoker.data.ledger.description import OperatorNote, RuleNote, SourceNote
from stoker.data.ledger.writing import LedgerWriter
from stoker.recipe import Kind

MARKUP = RuleNote("markup", "filter.markup", "above", 0.25, "own measurement", "mostly tags")
SYMBOLS = RuleNote("symbols", "filter.letters", "below", 0.5, "own measurement", "hardly any letters")


def note(name: str, *rules: RuleNote, kind: Kind = "prose", language: str | None = None) -> SourceNote:
    """A source whose documents are cleaned, filtered by `rules`, and scored."""
    measures = tuple(dict.fromkeys(rule.measure for rule in rules))
    reasons = {rule.reason: rule.meaning for rule in rules}
    operators = (
        OperatorNote("clean", (), {}, ()),
        OperatorNote("filter", measures, reasons, rules),
        OperatorNote("quality", ("quality.score",), {"poor": "reads like an advertisement"}, ()),
    )
    return SourceNote(name, kind, language, operators)


def row(
    source: str,
    number: int,
    verdict: str = "kept",
    reason: str | None = None,
    stage: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One document of 100 bytes in a file of ten lines; `more` in place of, or besides, its other columns."""
    dropped = verdict == "dropped"
    return {
        "source": source,
        "kind": "prose",
        "file": f"{source}/{number // 10}.txt",
        "position": f"line {number % 10 + 1}",
        "identifier": f"{source}/{number // 10}.txt:{number % 10 + 1}",
        "sha256": number.to_bytes(32, "little"),
        "characters": 100,
        "bytes": 100,
        "cjk_characters": 0,
        "formula_characters": 0,
        "code_characters": 0,
        "verdict": verdict,
        "stage": (stage or "filter") if dropped else None,
        "reason": reason,
    } | more


def write(
    corpus: Path, sources: Sequence[SourceNote], rows: Sequence[Mapping[str, Any]], several: int = 3
) -> Ledger:
    """The ledger of some rows, added `several` at a time; documents that are kept get places and 10 tokens."""
    writer = LedgerWriter(corpus / "ledger", sources, part_rows=8, group_rows=4)
    placed: dict[tuple[str, str], int] = {}
    numbered = []
    for one in rows:
        split = {"kept": "train", "held_out": "held_out"}.get(one["verdict"])
        place: dict[str, Any] = {}
        if split is not None:
            document = placed.get((one["source"], split), 0)
            placed[one["source"], split] = document + 1
            place = {"split": split, "document": document, "tokens": 10}
        numbered.append({**one, **place})
    for start in range(0, len(numbered), several):
        writer.add(pa.Table.from_pylist(numbered[start : start + several], writer.schema))
    writer.close()
    return Ledger(corpus)
