"""Steps that take longer than they did, and which part of them does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stoker.diagnosis.finding import Evidence, Finding, Severity, confidence_of
from stoker.diagnosis.level_shift import Shift, level_shifts
from stoker.diagnosis.recent_past import Curve, Numbers, Steps, window_of
from stoker.diagnosis.remedies import remedy

_LEAST_DEVIATION = 0.005
_LEAST = float(np.log(1.08))
_NOTABLE = float(np.log(1.15))
_LEAST_WINDOW = 16
"""Rows: in a shorter record a machine that others use as well gives steps of any length."""


def find_throughput_drops(
    seconds: Curve, phases: Mapping[str, Numbers], tokens: Numbers, ranks: Numbers
) -> list[Finding]:
    """Upward changes of level (`level_shift`) of the logarithm of the seconds a token takes.

    `seconds` [rows] are of a step without evaluation and saving, `phases` [rows] of its parts, `tokens` [rows]
    of a step (NaN where not recorded: then all steps count alike), `ranks` [rows] that did it. From 8% on it is
    a note, from 15% on, while it lasts and in a record of 128 rows or more, a warning. A change of the number
    of ranks is told in the evidence and is a note.
    """
    kept = np.isfinite(seconds.values) & (seconds.values > 0)
    steps, values = seconds.steps[kept], seconds.values[kept]
    size = tokens[kept]
    per_token = values / size if np.isfinite(size).all() and (size > 0).all() else values
    logs = np.log(per_token)
    shifts = level_shifts(logs, _LEAST, _LEAST_DEVIATION, detrend=False)
    parts = {name: part[kept] for name, part in phases.items()}
    shown = per_token * values[-1] / per_token[-1] if values.size else per_token
    window = window_of(logs.size)
    return [
        _finding(steps, shown, parts, ranks[kept], shift, shifts[number + 1 :], window)
        for number, shift in enumerate(shifts)
        if shift.after > shift.before
    ]


def _finding(
    steps: Steps,
    seconds: Numbers,
    phases: Mapping[str, Numbers],
    ranks: Numbers,
    shift: Shift,
    later: list[Shift],
    window: int,
) -> Finding:
    rise, at = shift.after - shift.before, shift.at
    end = next((one.at for one in later if one.after < shift.before + rise / 2), steps.size)
    before, after = slice(max(0, at - window), at), slice(at, min(at + window, end))
    step, last = int(steps[at]), int(steps[end - 1])
    growth = {name: _median(values[after]) - _median(values[before]) for name, values in phases.items()}
    growth = {name: grown for name, grown in growth.items() if np.isfinite(grown) and grown > 0}
    phase = max(growth, key=growth.__getitem__, default=None)
    resized = bool(np.nanmax(ranks[after], initial=0) != np.nanmax(ranks[before], initial=0))
    evidence = [Evidence(measure="seconds of a step", expected=_median(seconds[before]),
                         observed=_median(seconds[after]), step=step)]  # fmt: skip
    if phase is not None:
        evidence.append(
            Evidence(measure=f"seconds of {phase}", expected=_median(phases[phase][before]),
                     observed=_median(phases[phase][after]), step=step)
        )  # fmt: skip
    if resized:
        evidence.append(Evidence(measure="ranks", expected=_median(ranks[before]), observed=_median(ranks[after]),
                                 step=step))  # fmt: skip
    notable = rise > _NOTABLE and not resized and end == steps.size
    severity: Severity = "warning" if notable and window >= _LEAST_WINDOW else "note"
    return Finding(
        kind="throughput_drop",
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
