"""Marks what the doctor said of the runs of its examination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.examination_cases import CLEAN, Case

_EARLY = 3
"""Steps by which a finding may begin before its cause."""


@dataclass(frozen=True)
class Marked:
    """One run, and how right the doctor was. None: there is nothing to say of that."""

    case: Case
    said: str
    """The cause that is named first, be it by a note, which is what a run deserves that has gone on by itself;
    `clean` where nothing is found, and where nothing is wrong, nothing above a note."""
    first: Mapping[str, Any] | None
    """The finding that names it."""
    findings: Sequence[Mapping[str, Any]]
    kind: bool | None
    step: bool | None
    culprit: bool | None
    """Whether the documents, the rank or the source at fault are named."""
    above_note: bool
    error: str | None
    live: Mapping[str, Any]

    def __str__(self) -> str:
        where = "" if self.first is None else f" {self.first['kind']} from step {self.first['first_step']}"
        told = f"{self.case.name} ({', '.join(self.case.faults) or 'no fault'}): {self.said}{where}"
        wrong = [name for name in ("kind", "step", "culprit") if getattr(self, name) is False]
        told += f"  WRONG {', '.join(wrong)}" if wrong else ""
        return told + (f"  FAILED: {self.error}" if self.error else "")


def mark(case: Case, told: Mapping[str, Any]) -> Marked:
    """How right it was."""
    findings = told["findings"]
    grave = [one for one in findings if one["severity"] != "note"]
    looked_at = grave if case.cause == CLEAN else findings
    first = looked_at[0] if looked_at else None
    wrong = case.cause != CLEAN and first is not None
    return Marked(
        case=case,
        said=CLEAN if first is None else first["cause"],
        first=first,
        findings=findings,
        kind=first["kind"] in case.kinds
        if wrong and first is not None
        else (None if case.cause == CLEAN else False),
        step=_at_step(case, first),
        culprit=_culprit(case, first, told["samples"]),
        above_note=bool(grave),
        error=told["error"],
        live=told.get("live", {}),
    )


def _at_step(case: Case, first: Mapping[str, Any] | None) -> bool | None:
    if case.step is None or case.cause == CLEAN:
        return None
    if first is None or first["first_step"] is None:
        return False
    return bool(case.step - _EARLY <= first["first_step"] <= case.step + case.late)


def _culprit(case: Case, first: Mapping[str, Any] | None, samples: Sequence[int]) -> bool | None:
    if case.cause == CLEAN or not (samples or case.rank is not None or case.source):
        return None
    if case.ranks == 1 and case.rank is not None and not samples and not case.source:
        return None  # the only rank is no other's fault
    if first is None:
        return False
    if samples:
        return any(begin <= sample <= end for begin, end in first["documents"] for sample in samples)
    if case.source:
        return case.source in first["sources"]
    return list(first["ranks"]) == [case.rank]


def tables(marked: Sequence[Marked]) -> str:
    """Everything, as Markdown."""
    done = [one for one in marked if one.error is None]
    parts = [_summary(done), _by_cause(done), _confusion(done)]
    if failed := [one for one in marked if one.error is not None]:
        parts.append(f"{len(failed)} runs failed: " + "; ".join(f"{one.case.name}: {one.error}" for one in failed))
    return "\n\n".join(part for part in parts if part)


def _share(marked: Sequence[Marked], name: Callable[[Marked], bool | None]) -> str:
    known = [bool(value) for one in marked if (value := name(one)) is not None]
    return f"{sum(known) / len(known):.3f}" if known else ""


def _summary(done: Sequence[Marked]) -> str:
    clean = [one for one in done if one.case.cause == CLEAN]
    lines = ["| measure | found | wanted |", "|---|---|---|"]
    scores = f1_by_cause(
        [(one.case.cause, one.said) for one in done if one.case.cause != CLEAN], [c.said for c in clean]
    )
    if scores:
        lines.append(f"| macro-F1 of the first-named cause | {sum(scores.values()) / len(scores):.3f} | 0.90 |")
    lines.append(f"| right kind, of runs with a fault | {_share(done, lambda one: one.kind)} | 0.97 |")
    lines.append(f"| right step | {_share(done, lambda one: one.step)} | 0.97 |")
    lines.append(f"| documents, rank or source at fault named | {_share(done, lambda one: one.culprit)} | 0.95 |")
    if clean:
        lines.append(
            f"| runs without fault with a finding above a note | {_share(clean, lambda one: one.above_note)} "
            f"of {len(clean)} | 0.02 |"
        )
    lines += _live(done)
    return "\n".join(lines)


def _live(done: Sequence[Marked]) -> list[str]:
    """How early a run under way would have been warned of."""
    lines = []
    slow = [bool(one.live["in_time"]) for one in done if "in_time" in one.live]
    if slow:
        lines.append(f"| slow ranks seen after five slow steps | {sum(slow) / len(slow):.3f} of {len(slow)} | |")
    warned = [one.live for one in done if "noticed" in one.live]
    known = [one for one in warned if one["noticed"] is not None]
    ahead = sorted(one["moved"] - one["noticed"] for one in known if one["moved"] is not None)
    if warned:
        said = "no loss moved"
        if ahead:
            enough = sum(steps >= 20 for steps in ahead)
            said = f"{enough} of {len(ahead)} whose loss moved (least {ahead[0]}, median {ahead[len(ahead) // 2]})"
        said += f"; {len(known) - len(ahead)} of {len(warned)} before any move"
        lines.append(f"| slow causes: warned of 20 steps or more before the loss moves | {said} | all |")
    named = [
        (one.case.rank, rank)
        for one in done
        for finding in one.findings
        if finding["kind"] == "slow_rank" and finding["severity"] != "note"
        for rank in finding["ranks"]
    ]
    if named:
        right = sum(rank == said for rank, said in named) / len(named)
        lines.append(f"| ranks named as slow above a note that are | {right:.3f} of {len(named)} | 0.99 |")
    return lines


def f1_by_cause(pairs: Sequence[tuple[str, str]], of_clean: Sequence[str] = ()) -> dict[str, float]:
    """F1 of each true cause, from (true, said); what was `said` of clean runs counts as named wrongly."""
    said = Counter(told for _, told in pairs) + Counter(of_clean)
    true, right = Counter(cause for cause, _ in pairs), Counter(cause for cause, told in pairs if cause == told)
    return {cause: 2 * right[cause] / (true[cause] + said[cause]) for cause in true}


def _by_cause(done: Sequence[Marked]) -> str:
    lines = ["| cause | runs | named | F1 | kind | step | at fault |", "|---|---|---|---|---|---|---|"]
    of_clean = [one.said for one in done if one.case.cause == CLEAN]
    scores = f1_by_cause([(one.case.cause, one.said) for one in done if one.case.cause != CLEAN], of_clean)
    for cause in dict.fromkeys(one.case.cause for one in sorted(done, key=lambda one: one.case.cause)):
        own = [one for one in done if one.case.cause == cause]
        shares = [_share(own, name) for name in (lambda o: o.kind, lambda o: o.step, lambda o: o.culprit)]
        f1 = f"{scores[cause]:.2f}" if cause in scores else ""
        lines.append(
            f"| {cause} | {len(own)} | {sum(o.said == cause for o in own)} | {f1} | {' | '.join(shares)} |"
        )
    return "\n".join(lines)


def _confusion(done: Sequence[Marked]) -> str:
    """What was said instead, for each cause."""
    lines = ["| what was wrong | what was said instead |", "|---|---|"]
    for cause in sorted({one.case.cause for one in done}):
        others = Counter(one.said for one in done if one.case.cause == cause and one.said != cause)
        if others:
            lines.append(f"| {cause} | {', '.join(f'{said} {count}' for said, count in others.most_common())} |")
    return "\n".join(lines) if len(lines) > 2 else ""
