"""Weighs the causes that an incident may have against each other, and against none of them, and names the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stoker.diagnosis.causes import CATALOGUE, Cause, Incident, Sign
from stoker.diagnosis.finding import BENIGN, PACE, UNKNOWN, WEIGHT, Alternative, Evidence, Finding
from stoker.diagnosis.incidents import LAYOUT_CHANGED
from stoker.diagnosis.remedies import REMEDIES, fitting
from stoker.diagnosis.run_rows import RunRows
from stoker.diagnosis.text_at import Passage

NAMED = 3.0
"""Nats that a cause needs for it to be named: twenty times likelier than the run's own noise."""
_RUNNERS_UP = 3
_SHOWN = 3
_MOST_EVIDENCE = 10
_MANY, _FEWEST_MANY = 0.25, 3
_TOLD = ("failure", "stop_requested", "save_failed", "record_incomplete")
"""What they come of is in the record, or nowhere."""


def named(rows: RunRows, finding: Finding, members: Sequence[Finding], looked_at: int = 1) -> Finding:
    """The finding with its cause, the evidence for it, its remedy and the runners-up.

    `looked_at` is of how many such findings the text is read: of many some has odd text by chance.
    """
    if finding.kind in _TOLD or finding.cause == LAYOUT_CHANGED:
        return finding
    incident = Incident(rows, finding, tuple(members))
    kinds = {one.kind for one in members}
    weighed = [(cause, tuple(cause.evidence(incident))) for cause in CATALOGUE if kinds & set(cause.kinds)]
    weighed = [(cause, signs) for cause, signs in weighed if any(sign.score > 0 for sign in signs)]
    if not weighed:
        return finding.model_copy(update={"cause": UNKNOWN})
    needed = {cause.name: NAMED + (math.log(looked_at) if cause.features else 0.0) for cause, _ in weighed}
    # What is no fault is named only where nothing else is.
    ranked = sorted(
        weighed, key=lambda one: (_score(one[1]) < needed[one[0].name], one[0].name == BENIGN, -_score(one[1]))
    )
    best, signs = ranked[0]
    if _score(signs) < needed[best.name]:
        return finding.model_copy(update={"cause": UNKNOWN, "alternatives": _alternatives(ranked)})
    changes: dict[str, Any] = {
        "cause": best.name,
        "score": round(_score(signs), 2),
        "alternatives": _alternatives(ranked[1:]),
        "evidence": _evidence(finding, signs),
    }
    showing = [one for one in members if one.kind in best.shows and one.cause in (UNKNOWN, best.name)]
    own = showing or [one for one in members if one.kind in best.kinds]
    if own and (showing or finding.kind not in best.kinds):  # what else was found then is not what it comes of
        first = min(own, key=lambda one: one.first_step or 0)
        changes |= {"kind": first.kind, "first_step": first.first_step}
        changes["ranks"] = tuple(sorted({rank for one in own for rank in one.ranks}))
    if finding.kind in PACE:  # of what takes longer at the same time, the part and the ranks that it is named for
        said = [one for one in members if one.part and any(one.evidence[0] == sign.evidence for sign in signs)]
        if said:
            changes |= {"part": said[0].part, "ranks": said[0].ranks, "first_step": said[0].first_step}
            own = [one for one in members if one.part in (said[0].part, None)]
            changes["severity"] = max((one.severity for one in own), key=WEIGHT.__getitem__)
            if not best.shows or said[0].kind in best.shows:
                changes["kind"] = said[0].kind
    if best.remedy is not None and (finding.ranks or "{ranks}" not in REMEDIES[best.remedy]):
        given = {"step": finding.first_step, "ranks": list(finding.ranks)}
        changes["remedy"] = fitting(best.remedy, given)
    if documents := tuple(dict.fromkeys(pair for one in showing for pair in one.documents)):
        # Of which that was said, not all that the text of its steps may show.
        changes["documents"] = documents
        changes["names"] = tuple(dict.fromkeys(name for one in showing for name in one.names))
        changes["sources"] = tuple(dict.fromkeys(name for one in showing for name in one.sources))
        return finding.model_copy(update=changes)
    return _at_fault(rows, incident, best, finding.model_copy(update=changes))


def _score(signs: Sequence[Sign]) -> float:
    return sum(sign.score for sign in signs)


def _alternatives(ranked: Sequence[tuple[Cause, tuple[Sign, ...]]]) -> tuple[Alternative, ...]:
    return tuple(
        Alternative(
            cause=cause.name,
            score=round(_score(signs), 2),
            speaks_for=_telling([sign for sign in signs if sign.score > 0]),
            speaks_against=_telling([sign for sign in signs if sign.score < 0]),
        )
        for cause, signs in ranked[:_RUNNERS_UP]
    )


def _telling(signs: Sequence[Sign]) -> tuple[Evidence, ...]:
    ordered = sorted(signs, key=lambda sign: -abs(sign.score))
    return tuple(sign.evidence for sign in ordered[:_SHOWN])


def _evidence(finding: Finding, signs: Sequence[Sign]) -> tuple[Evidence, ...]:
    """What was found, and what speaks for the cause."""
    own = [one for one in _telling([sign for sign in signs if sign.score > 0]) if one not in finding.evidence]
    return (*finding.evidence[: _MOST_EVIDENCE - len(own)], *own)


def _are_many(rows: RunRows, passages: Sequence[Passage]) -> bool:
    """Whether some step has so many samples at fault that they are no accident of a source: a quarter of them, and
    three at least where it has as many."""
    of_steps: dict[int, set[int]] = {}
    for one in passages:
        of_steps.setdefault(one.step, set()).add(one.sample)
    return any(len(own) >= _many_of(max(rows.samples_of(step), 1)) for step, own in of_steps.items())


def _many_of(samples: int) -> float:
    return max(_MANY * samples, min(_FEWEST_MANY, samples))


def _at_fault(rows: RunRows, incident: Incident, cause: Cause, finding: Finding) -> Finding:
    """With the documents whose text shows the cause, where it is one of text: then somebody should look at them."""
    if not cause.features or rows.text is None:
        return finding
    known = [incident.text[feature] for feature in cause.features if feature in incident.text]
    passages = list(dict.fromkeys(one for contrast in known for one in contrast.passages))
    if not passages:
        return finding
    samples = sorted({one.sample for one in passages})
    first = min(one.step for one in passages)
    ranges: list[tuple[int, int]] = []
    for sample in samples:
        if ranges and sample == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], sample)
        else:
            ranges.append((sample, sample))
    return finding.model_copy(
        update={
            "severity": "warning" if finding.severity == "note" and _are_many(rows, passages) else finding.severity,
            "first_step": first,
            "last_step": max(first, finding.last_step or first),
            "documents": tuple(ranges),
            "names": tuple(rows.text.names((one.source, one.document) for one in passages)),
            "sources": tuple(dict.fromkeys((*finding.sources, *(one.source for one in passages)))),
        }
    )
