"""Documents with a loss that the worst ones of other steps do not have, whether or not the step shows it."""

from __future__ import annotations

import numpy as np
import polars as pl

from stoker.diagnosis.excursion import Excursion, excursions
from stoker.diagnosis.finding import Evidence, Finding, confidence_of
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
_MOST_ROWS = 32
_MOST_FAINT = 8
LOOKED_AT = float(np.log(_MOST_FAINT))
"""Nats more that the text of such spikes has to say, since so many are looked at."""
FAINT = 0.3
"""How sure a finding is that is none unless its documents are at fault."""
_FEWEST_ROWS = 16


def _short_excursions(curve: Curve, deviations: float) -> list[Excursion]:
    logs = np.log(curve.values)
    window = window_of(logs.size)
    expected = shifted(rolling_median(logs, window), 1)
    away = logs - expected
    # Around its own median: that the curve falls is none of its noise.
    spread = shifted(TO_DEVIATIONS * past_median(np.abs(away - rolling_median(away, window)), 2 * window), 1)
    limit = np.where(np.isfinite(expected), deviations * np.fmax(spread, _LEAST_DEVIATION), np.inf)
    found = excursions(logs, Usual(np.nan_to_num(expected), limit))
    return [one for one in found if one.noticed >= _FEWEST_ROWS and one.rows <= _MOST_ROWS]


def find_faint_spikes(loss: Curve) -> list[Finding]:
    """Rows whose loss stands out by 4 deviations, too few for a spike by itself: only bad text makes it one.

    The eight that stand out most. Their confidence is `FAINT`.
    """
    curve = loss.positive
    logs = np.log(curve.values)
    most = sorted(
        _short_excursions(curve, _FAINT_DEVIATIONS), key=lambda one: one.expected - float(logs[one.peak])
    )[:_MOST_FAINT]
    return [
        Finding(
            kind="spike",
            severity="note",
            first_step=int(curve.steps[one.first]),
            last_step=int(curve.steps[one.last]),
            confidence=FAINT,
            evidence=(
                Evidence(
                    measure="loss",
                    expected=float(np.exp(one.expected)),
                    observed=float(curve.values[one.peak]),
                    step=int(curve.steps[one.peak]),
                ),
            ),
            remedy=remedy("look_at_samples", step=int(curve.steps[one.first])),
        )
        for one in most
    ]


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
    for one in _short_excursions(curve, _DEVIATIONS):
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
