"""Documents with a loss that the worst ones of other steps do not have, whether or not the step shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from stoker.diagnosis.excursion import Excursion, excursions
from stoker.diagnosis.finding import Evidence, Finding, Kind, confidence_of
from stoker.diagnosis.recent_past import (
    TO_DEVIATIONS,
    Curve,
    Usual,
    as_steps,
    past_median,
    rolling_median,
    shifted,
    window_of,
)
from stoker.diagnosis.remedies import remedy

_DEVIATIONS, _FAINT_DEVIATIONS = 5.0, 4.0
_LEAST_DEVIATION = 0.02
_LEAST_OF_ALL = 0.01
"""The mean over a batch is steadier than its worst documents."""
_LEAST_OF_GRADIENT = 0.05
_MOST_ROWS = 32
_MOST_FAINT = 8
LOOKED_AT = float(np.log(_MOST_FAINT))
"""Nats more that the text of such spikes has to say, since so many are looked at."""
FAINT = 0.3
"""How sure a finding is that is none unless its documents are at fault."""
_FIRM = 0.5
_STRONGER: tuple[Kind, ...] = ("spike", "divergence", "gradient_growth")
_EXPLAIN: tuple[Kind, ...] = (
    "nan", "gradient_shift", "update_jump", "learning_rate_jump", "loss_scale_collapse", "router_collapse",
)  # fmt: skip
"""Findings that say what the loss moves by: next to them a faint spike is theirs."""
_FEWEST_ROWS = 16


def _short_excursions(curve: Curve, deviations: float, least: float) -> list[Excursion]:
    logs = np.log(curve.values)
    window = window_of(logs.size)
    expected = shifted(rolling_median(logs, window), 1)
    away = logs - expected
    # Around its own median: that the curve falls is none of its noise, and hides no rise.
    behind = rolling_median(away, window)
    expected = expected + np.fmin(shifted(behind, 1), 0.0)
    spread = shifted(TO_DEVIATIONS * past_median(np.abs(away - behind), 2 * window), 1)
    # Not in the first rows: what stands out there by too short a past may cover a whole run.
    known = np.isfinite(expected) & (np.arange(logs.size) >= _FEWEST_ROWS)
    limit = np.where(known, deviations * np.fmax(spread, least), np.inf)
    found = excursions(logs, Usual(np.nan_to_num(expected), limit))
    return [one for one in found if one.rows <= _MOST_ROWS]


def find_faint_spikes(
    loss: Curve, gradient_norm: Curve, known: Sequence[Finding] = (), near: int = 0
) -> list[Finding]:
    """Rows whose loss stands out by 4 deviations, too few for a spike by itself.

    Where the gradient norm stands out by as many in the same rows, two measures agree and it is one; else only bad
    text makes it one, and its confidence is `FAINT`, as it is less than `near` steps from a `known` finding that
    says more. The eight that stand out most; but none that ends shortly before one, whose beginning is known
    better, and none next to one that explains it.
    """
    curve = loss.positive
    logs = np.log(curve.values)
    most = sorted(
        _short_excursions(curve, _FAINT_DEVIATIONS, _LEAST_OF_ALL),
        key=lambda one: one.expected - float(logs[one.peak]),
    )[:_MOST_FAINT]
    norm = gradient_norm.positive
    pulled = {
        int(step)
        for one in _short_excursions(norm, _FAINT_DEVIATIONS, _LEAST_OF_GRADIENT)
        for step in norm.steps[one.noticed : one.last + 1]
    }
    stronger = [one for one in known if one.kind in _STRONGER and one.first_step is not None]
    explain = [one for one in known if one.kind in _EXPLAIN and one.first_step is not None]
    found = []
    for one in most:
        first, last = int(curve.steps[one.first]), int(curve.steps[one.last])
        if any(last < (other.first_step or 0) <= last + near for other in stronger):
            continue
        if any(abs((other.first_step or 0) - first) <= near for other in explain):
            continue
        alone = not any(_next_to(other, first, last, near) for other in stronger)
        firm = alone and pulled & {int(step) for step in curve.steps[one.noticed : one.last + 1]}
        peak = Evidence(
            measure="loss",
            expected=float(np.exp(one.expected)),
            observed=float(curve.values[one.peak]),
            step=int(curve.steps[one.peak]),
        )
        found.append(
            Finding(
                kind="spike",
                severity="note",
                first_step=first,
                last_step=last,
                confidence=_FIRM if firm else FAINT,
                evidence=(peak,),
                remedy=remedy("look_at_samples", step=first),
            )
        )
    return found


def _next_to(other: Finding, first: int, last: int, near: int) -> bool:
    return (other.first_step or 0) <= last + near and first <= (other.last_step or last) + near


def find_document_spikes(documents: pl.DataFrame) -> list[Finding]:
    """Rows whose worst documents' mean loss stands 5 deviations above that of the window before (32 rows), in
    logarithms.

    `documents` are the worst of each step. Notes: hard documents are no fault, and what is wrong with these is for
    their text to say. With the numbers of their samples. Not in the first rows.
    """
    if not {"step", "loss", "sample"} <= set(documents.columns):
        return []
    table = documents.drop_nulls(["step", "loss", "sample"]).filter(pl.col("loss") > 0)
    worst = table.group_by("step").agg(pl.col("loss").mean()).sort("step")
    curve = Curve(as_steps(worst["step"].to_numpy()), worst["loss"].to_numpy()).positive
    logs = np.log(curve.values)
    found = []
    for one in _short_excursions(curve, _DEVIATIONS, _LEAST_DEVIATION):
        first, last = int(curve.steps[one.noticed]), int(curve.steps[one.last])
        high = pl.col("loss") > float(np.exp(one.expected + one.limit))
        own = table.filter(pl.col("step").is_between(first, last) & high)
        samples = sorted({int(sample) for sample in own["sample"].to_list()})
        found.append(
            Finding(
                kind="spike",
                severity="note",
                first_step=first,
                last_step=last,
                documents=tuple((sample, sample) for sample in samples[:_MOST_ROWS]),
                confidence=confidence_of(float(logs[one.peak] - one.expected), one.limit),
                evidence=(
                    Evidence(
                        measure="mean loss of the step's worst documents",
                        expected=float(np.exp(one.expected)),
                        observed=float(curve.values[one.peak]),
                        step=int(curve.steps[one.peak]),
                    ),
                ),
                remedy=remedy("look_at_samples", step=first),
            )
        )
    return found
