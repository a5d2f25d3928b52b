"""Several runs side by side: a table, overlaid curves, and in what their recipes differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from stoker import wording
from stoker.report.charts import Payload, Sampling, line, line_chart
from stoker.report.curves import places_of, seconds_of_training
from stoker.report.held_out import places_at, with_overall
from stoker.report.run_facts import RunFacts
from stoker.report.story import Headline


@dataclass(frozen=True)
class Row:
    """One figure of every run; `best` are the places of the best ones."""

    what: str
    cells: list[str]
    best: frozenset[int] = frozenset()


def comparison_rows(headlines: Sequence[Headline]) -> list[Row]:
    """The runs' figures, one row each."""
    held_out = [h.held_out for h in headlines]
    losses = [score.loss if score else None for score in held_out]
    bits = [score.bits_per_byte if score else None for score in held_out]
    speeds = [h.tokens_per_second for h in headlines]
    memory = [h.peak_memory for h in headlines]
    seconds = [h.seconds for h in headlines]
    steps = [f"{h.step:,} of {h.steps_planned:,}" if h.steps_planned else f"{h.step:,}" for h in headlines]
    return [
        Row("state", [h.state_words for h in headlines]),
        Row("model", [h.model for h in headlines]),
        Row("parameters", [wording.count(h.parameters) for h in headlines]),
        Row("steps", steps),
        Row("tokens trained on", [wording.count(h.tokens) for h in headlines]),
        Row("last training loss", [wording.figure(h.loss) for h in headlines]),
        Row("held-out loss", [wording.figure(loss) for loss in losses], _lowest(losses)),
        Row("held-out bits per byte", [wording.figure(value) for value in bits], _lowest(bits)),
        Row("tokens per second", [wording.count(speed) for speed in speeds], _lowest(speeds, sign=-1)),
        Row("peak memory per rank", [wording.size(value) for value in memory], _lowest(memory)),
        Row("training time", [wording.duration(value) for value in seconds]),
        Row("device", [h.device for h in headlines]),
        Row("ranks", [h.ranks_words for h in headlines]),
    ]


def _lowest(values: Sequence[float | None], sign: int = 1) -> frozenset[int]:
    """Places of the lowest value (of the highest with sign -1), when there is something to compare."""
    known = {i: sign * value for i, value in enumerate(values) if value is not None and np.isfinite(value)}
    if len(known) < 2:
        return frozenset()
    return frozenset(i for i, value in known.items() if value == min(known.values()))


def recipe_differences(runs: Sequence[RunFacts]) -> list[Row]:
    """Every recipe value that is not the same in all runs."""
    flat = [dict(_leaves(facts.recipe)) for facts in runs]
    keys = dict.fromkeys(key for values in flat for key in values)
    differing = []
    for key in keys:
        cells = [values.get(key, wording.NOTHING) for values in flat]
        if len(set(cells)) > 1 and key not in ("name", "run"):
            differing.append(Row(key, cells))
    return differing


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        for index, part in enumerate(value):
            name = part.get("name") if isinstance(part, dict) else None
            yield from _leaves(part, f"{prefix}[{name if name is not None else index}]")
    else:
        yield prefix, "none" if value is None else str(value)


def add_comparison_charts(payload: Payload, runs: Sequence[RunFacts], labels: Sequence[str]) -> list[str]:
    """Add overlaid charts named `all-…`; returns the names of those that have data."""
    columns = {"loss": "nats per token", "gradient_norm": "", "learning_rate": ""}
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in (*columns, "tokens_per_second", "held_out")}
    for index, (facts, label) in enumerate(zip(runs, labels, strict=True)):
        if facts.steps.height:
            sampling, axis = Sampling(facts.steps.height), f"all-{index}"
            payload.add_axis(axis, {unit: at[sampling.places] for unit, at in places_of(facts).items()})
            for column in columns:
                values = facts.numbers(column)
                if np.isfinite(values).any():
                    lines[column].append(line(label, axis, sampling, values, index))
            seconds = seconds_of_training(facts)
            rate = facts.numbers("tokens") / np.where(seconds > 0, seconds, np.nan)
            if np.isfinite(rate).any():
                lines["tokens_per_second"].append(line(label, axis, sampling, rate, index))
        if facts.evaluations.height:
            lines["held_out"].append(_held_out_line(payload, facts, label, index))
    options: dict[str, dict[str, Any]] = {
        "loss": {"smooth": True, "unit": "nats per token", "main": True},
        "held_out": {"points": True, "unit": "nats per token"},
        "gradient_norm": {"smooth": True, "unit": ""},
        "learning_rate": {"unit": "", "floor": 0},
        "tokens_per_second": {"smooth": True, "unit": "", "floor": 0, "format": "count"},
    }
    present = [name for name in options if lines[name]]
    for name in present:
        payload.charts[f"all-{name.replace('_', '-')}"] = line_chart(lines[name], **options[name])
    return [name.replace("_", "-") for name in present]


def _held_out_line(payload: Payload, facts: RunFacts, label: str, index: int) -> dict[str, Any]:
    """Loss on all held-out text over training."""
    rows = with_overall(facts.evaluations)
    last_source = rows["source"][-1]  # all sources together, or the only one
    rows = rows.filter(pl.col("source") == last_source)
    axis = f"all-{index}-held-out"
    payload.add_axis(axis, places_at(facts, rows["step"].cast(pl.Float64).to_numpy()))
    return line(label, axis, Sampling(rows.height), rows["loss"].to_numpy(), index)
