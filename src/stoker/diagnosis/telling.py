"""A diagnosis in words, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stoker.diagnosis.diagnose import Diagnosis
from stoker.diagnosis.finding import EVENT, UNKNOWN, Evidence, Finding
from stoker.diagnosis.remedies import in_words
from stoker.plural import counted
from stoker.wording import NOTHING, exact, figure, moment, one_line, words

_GAPS_SHOWN = 12
_LONGEST_LINE = 4000
_NAMES_SHOWN = 4
_INDENT = " " * 9
_SURENESS = ((0.9, "strong evidence"), (0.7, "fair evidence"), (0.0, "weak evidence"))


def in_text(diagnosis: Diagnosis) -> str:
    """Findings, the most important first, and what the record lacks."""
    lines = [_headline(diagnosis), ""]
    for finding in diagnosis.findings:
        lines += [*_finding(finding, diagnosis), ""]
    if not diagnosis.findings:
        lines += ["Nothing stands out.", ""]
    if diagnosis.missing:
        lines.append(f"Not recorded, so not looked at: {', '.join(map(words, diagnosis.missing))}.")
    if diagnosis.gaps:
        lines.append("Missing from the record:")
        lines += [f"  {gap.detail}" for gap in diagnosis.gaps[:_GAPS_SHOWN]]
        if len(diagnosis.gaps) > _GAPS_SHOWN:
            lines.append(f"  and {len(diagnosis.gaps) - _GAPS_SHOWN} more (--json lists all)")
    # What names and texts in it hold begins no line of its own and tells a terminal nothing.
    return "\n".join(one_line(line, _LONGEST_LINE) for line in lines).rstrip()


def _headline(diagnosis: Diagnosis) -> str:
    if not diagnosis.rows:
        return f"{diagnosis.run}: no step has been recorded"
    span = f"steps {exact(diagnosis.first_step)} to {exact(diagnosis.last_step)}"
    state = ", still being written" if diagnosis.under_way else ""
    return f"{diagnosis.run}: {counted(diagnosis.rows, 'rows')}, {span}{state}"


@dataclass(frozen=True)
class Told:
    """A finding in words."""

    severity: str
    what: str
    """Kind, time, cause, and how sure."""
    where: str
    """Ranks, sources and samples; empty where none are known."""
    evidence: tuple[str, ...]
    runner_up: str
    """What else it may be, and what speaks for that; empty where there is nothing."""
    remedy: str


def in_words_of(finding: Finding, diagnosis: Diagnosis) -> Told:
    """The finding as a terminal and the report tell it."""
    cause = "" if finding.cause == UNKNOWN else f", cause: {words(finding.cause)}"
    return Told(
        severity=finding.severity,
        what=f"{words(finding.kind)}, {_when(finding, diagnosis)}{cause} ({_how_sure(finding.confidence)})",
        where=_where(finding),
        evidence=tuple(map(_evidence, finding.evidence)),
        runner_up=_runner_up(finding),
        remedy=in_words(finding.remedy),
    )


def _how_sure(confidence: float) -> str:
    """No figure: it has not been compared with how often findings were right."""
    if confidence >= 1:
        return "certain"
    return next(said for least, said in _SURENESS if confidence >= least)


def _finding(finding: Finding, diagnosis: Diagnosis) -> Iterator[str]:
    told = in_words_of(finding, diagnosis)
    yield f"{told.severity.upper():<9}{told.what}"
    if told.where:
        yield _INDENT + told.where
    for line in told.evidence:
        yield _INDENT + line
    if told.runner_up:
        yield _INDENT + told.runner_up
    yield f"{_INDENT}→ {told.remedy}"


def _runner_up(finding: Finding) -> str:
    """Only where there is more for it than against it."""
    second = next((one for one in finding.alternatives if one.score > 0 and one.speaks_for), None)
    if second is None:
        return ""
    how = "it may be" if finding.cause == UNKNOWN else "less likely"
    against = f"; but {_evidence(second.speaks_against[0])}" if second.speaks_against else ""
    return f"{how}: {words(second.cause)} ({_evidence(second.speaks_for[0])}{against})"


def _when(finding: Finding, diagnosis: Diagnosis) -> str:
    first, last = finding.first_step, finding.last_step
    if first is None:
        return "before the first step"
    steps = f"step {exact(first)}" if last in (first, None) else f"steps {exact(first)} to {exact(last)}"
    begun = diagnosis.times.get(first)
    ended = None if last is None or last == first else diagnosis.times.get(last)
    if begun is None:
        return steps
    return f"{steps}, {moment(begun)}" + (f" to {moment(ended)}" if ended is not None else "") + " UTC"


def _where(finding: Finding) -> str:
    parts = []
    if finding.ranks:
        parts.append(f"{counted(len(finding.ranks), 'ranks').split()[1]} {', '.join(map(str, finding.ranks))}")
    if finding.sources:
        parts.append(f"{counted(len(finding.sources), 'sources').split()[1]} {', '.join(finding.sources)}")
    if finding.documents:
        ranges = ", ".join(
            exact(first) if first == last else f"{exact(first)}–{exact(last)}" for first, last in finding.documents
        )
        parts.append(f"samples {ranges}")
    if finding.names:
        more = f" and {len(finding.names) - _NAMES_SHOWN} more" if len(finding.names) > _NAMES_SHOWN else ""
        parts.append(f"documents {', '.join(finding.names[:_NAMES_SHOWN])}{more}")
    return "; ".join(parts)


def _evidence(evidence: Evidence) -> str:
    at = "" if evidence.step is None else f" at step {exact(evidence.step)}"
    expected, observed = _spelled(evidence.expected), _spelled(evidence.observed)
    if evidence.measure == EVENT:
        return observed if evidence.step is None else f"at step {exact(evidence.step)}: {observed}"
    if evidence.expected is None:
        return f"{evidence.measure}: {observed}{at}"
    if isinstance(evidence.expected, str):
        return f"{evidence.measure}: {observed}{at} (expected: {expected})"
    return f"{evidence.measure}: {observed} where {expected} was expected{at}"


def _spelled(value: float | str | None) -> str:
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else figure(value)
