"""Findings that tell of the same incident become one, whose evidence begins with what was seen first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stoker.diagnosis.finding import WEIGHT, Evidence, Finding, Kind

FAMILIES: tuple[tuple[Kind, ...], ...] = (
    (
        "silent_corruption",
        "loss_scale_collapse",
        "nan",
        "divergence",
        "spike",
        "step_rise",
        "source_drift",
        "gradient_growth",
        "router_collapse",
        "mixture_shift",
        "repeated_data",
        "learning_rate_jump",
        "update_jump",
        "gradient_shift",
        "logit_growth",
        "sequence_length_change",
        "step_drop",
    ),
    ("hang", "failure", "stop_requested", "stall"),
    ("slow_rank", "throughput_drop", "jitter"),
)
"""Kinds that one cause can show itself as. Of several the foremost names the incident."""
_TOLD_KINDS = ("hang", "failure", "stop_requested")
_LASTING = (
    "gradient_growth", "throughput_drop", "gradient_shift", "sequence_length_change", "mixture_shift", "step_drop",
    "learning_rate_jump",
)  # fmt: skip
_MOST_EVIDENCE = 8
LAYOUT_CHANGED = "layout_changed"
"""The cause of what another number of ranks explains: no other finding is of the same incident."""


def together(findings: Iterable[Finding], near: int) -> list[tuple[Finding, tuple[Finding, ...]]]:
    """Merge findings of a family whose steps overlap or are at most `near` steps apart; each with those that it is
    made of. Other kinds stay as they are."""
    rest = list(findings)
    merged: list[tuple[Finding, tuple[Finding, ...]]] = []
    merged += [(one, (one,)) for one in rest if one.cause == LAYOUT_CHANGED]
    rest = [one for one in rest if one.cause != LAYOUT_CHANGED]
    for family in FAMILIES:
        own = sorted((one for one in rest if one.kind in family), key=_begin)
        rest = [one for one in rest if one.kind not in family]
        groups: list[list[Finding]] = []
        for one in own:
            group = next((group for group in groups if _fits(group, one, near)), None)
            if group is None:
                groups.append([one])
            else:
                group.append(one)
        merged += [(_merged(group, family), tuple(group)) for group in groups]
    return [*merged, *((one, (one,)) for one in rest)]


def _begin(one: Finding) -> int:
    return one.first_step if one.first_step is not None else -1


def _end(one: Finding, near: int) -> int:
    end = one.last_step if one.last_step is not None else _begin(one)
    # These may last for long; what happens much later is another incident. Logits that run away do harm much later,
    # those that only grew do none.
    harmless = one.kind == "logit_growth" and one.severity == "note"
    return min(end, _begin(one) + 2 * near) if one.kind in _LASTING or harmless else end


def _same(earlier: Finding, later: Finding, near: int) -> bool:
    """Whether `later`, which does not begin before `earlier`, is of the same incident."""
    if earlier.ranks and later.ranks and not set(earlier.ranks) & set(later.ranks):
        return False
    return _begin(later) <= _end(earlier, near) + near


def _fits(group: Sequence[Finding], one: Finding, near: int) -> bool:
    """Whether `one` is of the group's incident; two that events tell of never are one."""
    both_told = one.kind in _TOLD_KINDS and any(other.kind in _TOLD_KINDS for other in group)
    return not both_told and any(_same(other, one, near) for other in group)


def _merged(group: Sequence[Finding], family: Sequence[Kind]) -> Finding:
    if len(group) == 1:
        return group[0]
    foremost = min(group, key=lambda one: (family.index(one.kind), -WEIGHT[one.severity], _begin(one)))
    severest = max(group, key=lambda one: WEIGHT[one.severity])
    ends = [one.last_step for one in group if one.last_step is not None]
    # What looks at rows of one rank and part knows best when it began.
    exact = [one for one in group if one.part is not None] or group
    begins = [one.first_step for one in exact if one.first_step is not None]
    return foremost.model_copy(
        update={
            "cause": next((one.cause for one in group if one.cause != "unknown"), "unknown"),
            "severity": severest.severity,
            "first_step": min(begins, default=None),
            "last_step": max(ends, default=None),
            "ranks": tuple(sorted({rank for one in group for rank in one.ranks})),
            "sources": tuple(dict.fromkeys(name for one in group for name in one.sources)),
            "documents": tuple(sorted({part for one in group for part in one.documents})),
            "part": next((one.part for one in group if one.part is not None), None),
            "confidence": max(one.confidence for one in group),
            "evidence": _in_order(part for one in group for part in one.evidence),
            "remedy": foremost.remedy
            if WEIGHT[foremost.severity] == WEIGHT[severest.severity]
            else severest.remedy,
        }
    )


def _in_order(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """By step, the first and the last ones where they are many."""
    parts = sorted(dict.fromkeys(evidence), key=lambda part: -1 if part.step is None else part.step)
    if len(parts) <= _MOST_EVIDENCE:
        return tuple(parts)
    half = _MOST_EVIDENCE // 2
    return (*parts[:half], *parts[-half:])
