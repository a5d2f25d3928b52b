"""Steps that were trained on what earlier steps had been trained on, or on other samples than the recipe gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from stoker.diagnosis.finding import Evidence, Finding
from stoker.diagnosis.recent_past import Steps, as_steps
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.slow_rise import stretches

REPEATED, ORDER_LOST = "repeated_batch", "random_state_lost"
_RECORDED = 0.99
_FEWEST_OF_ORDER = 3
"""Different batches that come again in the same order."""
_LOOKS, _MOST_LOOKS = 8, 32
_OF_EARLIER = 0.8
"""Share of the samples that are not a step's own, which have to be those of earlier steps."""
MEASURE = "batch (by its digest)"


def find_repeated_data(table: pl.DataFrame) -> list[Finding]:
    """Stretches of rows whose batch has the digest of an earlier row's.

    One batch again and again is a repeated batch. Several in the order they first came in: the data order began
    anew, as when the state it follows from is lost.
    """
    if not {"step", "batch_digest"} <= set(table.columns):
        return []
    known = table.select("step", "batch_digest").drop_nulls()
    if known.height < 2:
        return []
    first = known.with_row_index("row").with_columns(pl.col("row").min().over("batch_digest").alias("first"))
    origins = as_steps(first["first"].to_numpy())
    steps = as_steps(known["step"].to_numpy())
    again = origins < np.arange(steps.size)
    return [_repeats(steps, origins, begin, end) for begin, end in stretches(np.asarray(again))]


def _repeats(steps: Steps, origins: Steps, first: int, last: int) -> Finding:
    own = origins[first : last + 1]
    followed = np.count_nonzero(np.diff(own) == 1)
    in_order = np.unique(own).size >= _FEWEST_OF_ORDER and followed >= 0.8 * (last - first)
    step, origin = int(steps[first]), int(steps[own[0]])
    return Finding(
        kind="repeated_data",
        cause=ORDER_LOST if in_order else REPEATED,
        severity="warning",
        first_step=step,
        last_step=int(steps[last]),
        confidence=_RECORDED,
        evidence=(
            Evidence(measure=MEASURE, expected="one that no step had before",
                     observed=f"that of step {origin}" + (", and on in its order" if in_order else ""), step=step),
            Evidence(measure="steps with a batch that was there before", expected=0.0,
                     observed=float(last - first + 1), step=step),
        ),
        remedy=remedy("check_sampler", step=step),
    )  # fmt: skip


def find_other_order(
    table: pl.DataFrame, digest_of: Callable[[int], str | None], suspected: Sequence[int] = ()
) -> list[Finding]:
    """Since when steps are trained on other samples than the recipe gives them.

    `digest_of` computes a step's digest from the corpus. A few rows are looked at, among them `suspected` steps,
    and where one differs its beginning is searched for by halving. Nothing is said of a run that differs from its
    first row on: its corpus was another one.
    """
    if not {"step", "batch_digest"} <= set(table.columns):
        return []
    known = table.select("step", "batch_digest").drop_nulls()
    steps = as_steps(known["step"].to_numpy())
    if steps.size < _LOOKS:
        return []
    recorded = known["batch_digest"].to_list()

    def differs(row: int) -> bool:
        computed = digest_of(int(steps[row]))
        return computed is not None and computed != recorded[row]

    if differs(0):
        return []
    near = [int(np.searchsorted(steps, step)) for step in suspected]
    looks = int(np.clip(steps.size // _LOOKS, _LOOKS, _MOST_LOOKS))
    spread = np.linspace(1, steps.size - 1, looks).astype(int).tolist()
    rows = sorted({*spread, *(row for row in near if 0 < row < steps.size)})
    wrong = next((row for row in rows if differs(row)), None)
    if wrong is None:
        return []
    right = max((row for row in rows if row < wrong), default=0)
    while wrong - right > 1:
        middle = (wrong + right) // 2
        right, wrong = (right, middle) if differs(middle) else (middle, wrong)
    return [_other_order(steps, wrong, differs)]


def _other_order(steps: Steps, first: int, differs: Callable[[int], bool]) -> Finding:
    step, last = int(steps[first]), first
    while last + 1 < steps.size and last - first < _LOOKS and differs(last + 1):
        last += 1
    lasts = differs(steps.size - 1) and last - first >= min(_LOOKS, steps.size - 1 - first)
    return Finding(
        kind="repeated_data",
        cause=ORDER_LOST,
        severity="warning",
        first_step=step,
        last_step=int(steps[-1 if lasts else last]),
        confidence=_RECORDED,
        evidence=(
            Evidence(measure=MEASURE, expected="that of the samples which the recipe gives the step",
                     observed="another", step=step),
        ),
        remedy=remedy("check_sampler", step=step),
    )  # fmt: skip


def overlap(one: Finding, other: Finding) -> bool:
    """Whether two findings have a step in common."""
    firsts, lasts = (one.first_step or 0, other.first_step or 0), (one.last_step or 0, other.last_step or 0)
    return max(firsts) <= min(lasts)


def judged(
    finding: Finding, table: pl.DataFrame, documents: pl.DataFrame, others: Sequence[Finding]
) -> Finding | None:
    """What the other samples are: those of one earlier step, again, or of an order that began anew; None where they
    are what another mixture or length of the sequences (`others`) gives.

    By the numbers of the samples whose documents were recorded, where they were; else by whether it ends.
    """
    begin, end = finding.first_step or 0, finding.last_step or 0
    origins = _origins(table, documents, begin, end)
    earlier = [(step, origin) for step, origin in origins if 0 <= origin < step]
    if len(earlier) < _OF_EARLIER * max(len(origins), 1) and any(overlap(finding, other) for other in others):
        return None
    if not origins and others:
        return None
    lasts = bool(table.height) and end >= int(table["step"].to_numpy()[-1])
    again = len({origin for _, origin in earlier}) == 1 if earlier else not lasts
    if not again:
        return finding
    said = f"of step {earlier[0][1]}, in part or whole" if earlier else "another"
    evidence = finding.evidence[0].model_copy(update={"observed": said})
    return finding.model_copy(update={"cause": REPEATED, "evidence": (evidence, *finding.evidence[1:])})


def _origins(table: pl.DataFrame, documents: pl.DataFrame, begin: int, end: int) -> list[tuple[int, int]]:
    """(step, the step that the recipe gives the sample to) of the samples recorded of steps `begin` to `end` that
    are not the step's own; -1 where it is none of the record's."""
    if not {"step", "sample"} <= set(documents.columns) or "first_sample" not in table.columns:
        return []
    ranges = table.select("step", "first_sample", "last_sample").drop_nulls().sort("first_sample")
    steps, firsts, afters = (ranges[name].to_numpy() for name in ("step", "first_sample", "last_sample"))
    own = documents.filter(pl.col("step").is_between(begin, end)).drop_nulls(["step", "sample"])
    found = []
    for step, sample in own.select("step", "sample").unique(maintain_order=True).iter_rows():
        row = int(np.searchsorted(firsts, sample, side="right")) - 1
        origin = int(steps[row]) if row >= 0 and sample < afters[row] else -1
        if origin != step:
            found.append((step, origin))
    return found
