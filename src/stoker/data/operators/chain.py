"""The operators of a source, in order, and what they make of a document together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoker.data.document import Document
from stoker.data.operators.cleaning import Clean
from stoker.data.operators.decontamination import Decontaminate
from stoker.data.operators.filtering import Filter
from stoker.data.operators.language import IdentifyLanguage
from stoker.data.operators.lines import CleanLines
from stoker.data.operators.operator import Operator
from stoker.data.operators.perplexity import MeasurePerplexity
from stoker.data.operators.personal_data import MaskPersonalData
from stoker.data.operators.quality import ScoreQuality
from stoker.data.operators.removal import Remove
from stoker.data.operators.script import ChineseScript
from stoker.data.operators.unsafe import NoteUnsafe
from stoker.recipe import Cleaning, Source


@dataclass(frozen=True, slots=True)
class Judged:
    """A document behind the last operator that it reached."""

    document: Document
    stage: str | None
    """Where it ended: `read`, or the operator that dropped it; None where it is kept."""
    reason: str | None
    measures: Mapping[str, float]
    detail: str | None = None
    """What the last operator that had something to tell told of it, such as the evaluation item that it holds."""


def operators_of(source: Source, cleaning: Cleaning) -> tuple[Operator, ...]:
    """The operators that the documents of `source` go through, in order."""
    made: tuple[Operator | None, ...] = (
        Remove.of(source),
        Clean(),
        ChineseScript.of(source, cleaning),
        IdentifyLanguage.of(source, cleaning),
        CleanLines.of(source, cleaning),
        Filter.of(source, cleaning),
        MaskPersonalData.of(source, cleaning),
        NoteUnsafe.of(cleaning),
        Decontaminate.of(cleaning),
        ScoreQuality.of(source, cleaning),
        MeasurePerplexity.of(source, cleaning),
    )
    return tuple(one for one in made if one is not None)


def judge(document: Document, operators: Sequence[Operator]) -> Judged:
    """`document` after all operators, or up to the one that drops it."""
    measures: dict[str, float] = {}
    stage, detail = "read", document.detail
    if document.passed_over is not None:
        return Judged(document, stage, document.passed_over, measures, detail)
    for operator in operators:
        if not document.text or document.text.isspace():
            break
        stage = operator.name
        outcome = operator(document)
        document = outcome.document
        measures.update(outcome.measures)
        detail = outcome.detail or detail
        if outcome.reason is not None:
            return Judged(document, stage, outcome.reason, measures, detail)
    empty = not document.text or document.text.isspace()
    return Judged(document, stage if empty else None, "empty" if empty else None, measures, detail)
