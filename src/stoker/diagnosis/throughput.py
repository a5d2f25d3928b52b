"""Steps that take longer than they did, and which part of them does."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from stoker.diagnosis.finding import EVENT, Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.in_a_line import changed_ranks
from stoker.diagnosis.incidents import LAYOUT_CHANGED
from stoker.diagnosis.level_shift import Shift, level_shifts
from stoker.diagnosis.recent_past import Curve, Numbers, Steps, window_of
from stoker.diagnosis.remedies import remedy

_LEAST_DEVIATION = 0.005
_LEAST = float(np.log(1.08))
_NOTABLE = float(np.log(1.15))
_LARGE = float(np.log(1.5))
_INFERRED = 0.9
_PAST_WINDOWS = 8
"""That have to lie before a warning: a machine that others use as well gives steps of any length, and how far it
wanders is known only then."""
_PAST_OF_LARGE = 2
_AROUND = 16


def find_throughput_drops(
    seconds: Curve, phases: Mapping[str, Numbers], tokens: Numbers, ranks: Numbers
) -> list[Finding]:
    """Upward changes of level (`level_shift`) of the logarithm of the seconds a token takes.

    `seconds` [rows] are of a step without evaluation and saving, `phases` [rows] of its parts, `tokens` [rows]
    of a step (NaN where not recorded: then all steps count alike), `ranks` [rows] that did it. From 8% on it is
    a note; while it lasts, a warning: from 15% on with eight windows before it, and from 50% on, where it is
    waiting for other ranks, with two. Rows with one number of ranks are looked at by themselves; where the number
    changes, that is the cause, and a note.
    """
    kept = np.isfinite(seconds.values) & (seconds.values > 0)
    steps, values, ranks = seconds.steps[kept], seconds.values[kept], ranks[kept]
    size = tokens[kept]
    per_token = values / size if np.isfinite(size).all() and (size > 0).all() else values
    logs = np.log(per_token)
    parts = {name: part[kept] for name, part in phases.items()}
    shown = per_token * values[-1] / per_token[-1] if values.size else per_token
    window = window_of(logs.size)
    changes = np.flatnonzero(np.nan_to_num(np.diff(ranks)) != 0) + 1
    found = []
    for begin, end in pairwise([0, *changes.tolist(), logs.size]):
        own = slice(begin, end)
        if begin:
            found += _of_other_layout(steps, shown, ranks, begin, end, window)
        shifts = level_shifts(logs[own], _LEAST, _LEAST_DEVIATION, detrend=False)
        found += [
            _finding(steps[own], shown[own], {name: part[own] for name, part in parts.items()}, shift,
                     shifts[number + 1 :], window, end == logs.size and not _of_other_size(size[own], shift.at))
            for number, shift in enumerate(shifts)
            if shift.after > shift.before
        ]  # fmt: skip
    return found


def _of_other_size(tokens: Numbers, at: int) -> bool:
    """Whether steps have another number of tokens from about row `at` on, which is why each takes longer."""
    before, after = tokens[max(0, at - _AROUND) : at], tokens[at : at + _AROUND]
    return not np.isclose(_median(before), _median(after), rtol=0.02, equal_nan=True)


def _of_other_layout(
    steps: Steps, seconds: Numbers, ranks: Numbers, at: int, end: int, window: int
) -> list[Finding]:
    """Slower steps from row `at` on, where another number of ranks takes over."""
    before, after = _median(seconds[max(0, at - window) : at]), _median(seconds[at : min(at + window, end)])
    if not np.log(after / before) > _LEAST:
        return []
    step, old, new = int(steps[at]), int(ranks[at - 1]), int(ranks[at])
    return [
        Finding(
            kind="throughput_drop",
            cause=LAYOUT_CHANGED,
            severity="note",
            first_step=step,
            last_step=int(steps[end - 1]),
            confidence=_INFERRED,
            evidence=(
                Evidence(measure=EVENT, expected=None, observed=changed_ranks(old, new), step=step),
                Evidence(measure="seconds of a step", expected=before, observed=after, step=step),
            ),
            remedy=remedy("layout_changed"),
        )
    ]


def _finding(
    steps: Steps,
    seconds: Numbers,
    phases: Mapping[str, Numbers],
    shift: Shift,
    later: list[Shift],
    window: int,
    is_last: bool,
) -> Finding:
    rise, at = shift.after - shift.before, shift.at
    end = next((one.at for one in later if one.after < shift.before + rise / 2), steps.size)
    before, after = slice(max(0, at - window), at), slice(at, min(at + window, end))
    step, last = int(steps[at]), int(steps[end - 1])
    growth = {name: _median(values[after]) - _median(values[before]) for name, values in phases.items()}
    growth = {name: grown for name, grown in growth.items() if np.isfinite(grown) and grown > 0}
    phase = max(growth, key=growth.__getitem__, default=None)
    evidence = [Evidence(measure="seconds of a step", expected=_median(seconds[before]),
                         observed=_median(seconds[after]), step=step)]  # fmt: skip
    if phase is not None:
        evidence.append(
            Evidence(measure=f"seconds of {phase}", expected=_median(phases[phase][before]),
                     observed=_median(phases[phase][after]), step=step)
        )  # fmt: skip
    notable = rise > _NOTABLE and end == steps.size and is_last
    # A machine that others use as well computes for longer; that ranks wait so long for each other is seldom it.
    large = rise > _LARGE and phase == "communication"
    past = _PAST_OF_LARGE if large else _PAST_WINDOWS
    severity: Severity = "warning" if notable and at >= past * window else "note"
    return Finding(
        kind="throughput_drop",
        part="communication" if phase == "communication" else None,
        severity=severity,
        first_step=step,
        last_step=last,
        confidence=confidence_of(rise, shift.limit),
        evidence=tuple(evidence),
        remedy=remedy("check_phase", phase=phase or "steps", step=step),
    )


def _median(values: Numbers) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")
