"""How well a run predicts held-out text: by source, over training and at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from stoker.record import names_of
from stoker.report.charts import Payload, Sampling, line, line_chart
from stoker.report.curves import places_of
from stoker.report.run_facts import RunFacts

OVERALL = "all sources"
_RECENT_SHARE = 0.02
"""The training loss beside a score is the mean over this last share of the steps."""


@dataclass(frozen=True)
class Score:
    """The last evaluation of one source, or of all."""

    source: str
    step: int
    loss: float
    tokens: int
    bytes: int
    best_loss: float
    best_step: int
    training_loss: float | None
    """Mean training loss of the source over the last steps."""

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(self.loss) if self.loss < 700 else math.inf if self.loss == self.loss else math.nan

    @property
    def bits_per_byte(self) -> float:
        """Bits needed per byte of text."""
        return self.loss * self.tokens / math.log(2) / self.bytes if self.bytes else math.nan


def with_overall(evaluations: pl.DataFrame) -> pl.DataFrame:
    """The rows step, source, loss, tokens, bytes; and for each step of several sources one of all of them."""
    rows = evaluations.select("step", "source", "loss", "tokens", "bytes").drop_nulls(["step", "source", "loss"])
    # Weighted by tokens: the loss of all the text as if it were one.
    overall = (
        rows.group_by("step", maintain_order=True)
        .agg(
            pl.lit(OVERALL).alias("source"),
            (pl.col("loss") * pl.col("tokens")).sum() / pl.col("tokens").sum(),
            pl.col("tokens").sum(),
            pl.col("bytes").sum(),
            pl.len().alias("sources"),
        )
        .filter(pl.col("sources") > 1)
        .drop("sources")
        .select(rows.columns)
    )
    return pl.concat([rows, overall])


def final_scores(facts: RunFacts) -> list[Score]:
    """The last score of each source, all sources together last."""
    if facts.evaluations.is_empty():
        return []
    scores = []
    for (source,), rows in with_overall(facts.evaluations).group_by("source", maintain_order=True):
        losses = rows["loss"].to_numpy()
        best = int(np.nanargmin(losses)) if not np.isnan(losses).all() else 0
        last = rows.row(-1, named=True)
        scores.append(
            Score(
                source=str(source),
                step=last["step"],
                loss=last["loss"],
                tokens=last["tokens"] or 0,
                bytes=last["bytes"] or 0,
                best_loss=float(losses[best]),
                best_step=int(rows["step"][best]),
                training_loss=_recent_training_loss(facts, str(source)),
            )
        )
    return scores


def without_scores(facts: RunFacts, scores: Sequence[Score]) -> list[str]:
    """Sources without a score in a run that has some, or of whose corpus nothing was held out."""
    scored = {score.source for score in scores}
    return [name for name in facts.source_names if name not in scored and (scores or name in facts.not_held_out)]


def overall_score(scores: list[Score]) -> Score | None:
    """The score of all sources, or of the only one."""
    return scores[-1] if scores else None


def _recent_training_loss(facts: RunFacts, source: str) -> float | None:
    column = "loss" if source == OVERALL else f"loss_by_source.{source}"
    values = facts.numbers(column)
    recent = values[-max(1, round(values.size * _RECENT_SHARE)) :]
    finite = recent[np.isfinite(recent)]
    return float(finite.mean()) if finite.size else None


def source_colours(runs: Sequence[RunFacts]) -> dict[str, int]:
    """A colour for each source of any of `runs`, and one for all sources together: the same in every chart."""
    names = [OVERALL]
    for facts in runs:
        names += facts.source_names
        names += names_of(facts.steps, "loss_by_source")
        names += [str(name) for name in facts.evaluations["source"]] if facts.evaluations.height else []
    # The sources first; what stands for all of them last, in a colour of its own.
    ordered = [*(name for name in dict.fromkeys(names) if name != OVERALL), OVERALL]
    return {name: colour for colour, name in enumerate(ordered)}


def add_held_out_charts(payload: Payload, facts: RunFacts, prefix: str, colours: Mapping[str, int]) -> list[str]:
    """Add held-out loss and bits per byte over training, one curve a source; returns the charts' names.

    `colours` are those of the sources.
    """
    if facts.evaluations.is_empty():
        return []
    losses: list[dict[str, Any]] = []
    bits: list[dict[str, Any]] = []
    for (source,), rows in with_overall(facts.evaluations).group_by("source", maintain_order=True):
        colour = colours[str(source)]
        axis = f"{prefix}-held-out-{colour}"
        steps = rows["step"].cast(pl.Float64).to_numpy()
        payload.add_axis(axis, places_at(facts, steps))
        sampling = Sampling(rows.height)
        table = rows.with_columns(
            bits=pl.col("loss") * pl.col("tokens") / math.log(2) / pl.col("bytes"),
        )
        losses.append(line(str(source), axis, sampling, table["loss"].to_numpy(), colour))
        bits.append(line(str(source), axis, sampling, table["bits"].fill_null(float("nan")).to_numpy(), colour))
    payload.charts[f"{prefix}-held-out-loss"] = line_chart(losses, "nats per token", points=True)
    payload.charts[f"{prefix}-bits-per-byte"] = line_chart(bits, "bits per byte", points=True)
    return ["held-out-loss", "bits-per-byte"]


def places_at(facts: RunFacts, steps: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    """Where steps [n] lie on each axis; tokens and hours are those of the step's row."""
    places = places_of(facts)
    own = places["step"]
    if own.size == 0:
        return {"step": steps}
    at = np.searchsorted(own, steps, side="right") - 1
    # An evaluation before the first step, or of a step whose row is missing, lies where training then stood.
    return {"step": steps} | {
        unit: np.where(at >= 0, places[unit][np.maximum(at, 0)], 0.0) for unit in ("tokens", "hours")
    }
