"""The charts of a run's training: what each step recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stoker.record import names_of
from stoker.report.charts import (
    LARGEST_MARK_COUNT,
    Numbers,
    Payload,
    Sampling,
    heat_map,
    line,
    line_chart,
    pack_float32,
)
from stoker.report.run_facts import RunFacts
from stoker.wording import words

PHASES = ("forward", "backward", "communication", "optimizer", "data", "evaluation", "checkpoint")
_PHASE_COLOURS = {name: colour for colour, name in enumerate((*PHASES, "other"))}
_STACK_PIXELS = 500
_MARKED = 200
_MARKED_EVENTS = (
    "resumed", "terminated", "non_finite", "save_failed", "record_write_failed", "failure", "gave_up",
    "supervisor_died", "command_ended", "ranks_changed", "shrunk", "grown",
)  # fmt: skip


def seconds_per_step(facts: RunFacts) -> Numbers:
    """Whole time of each step, evaluation and saving included; NaN where it was not recorded."""
    return facts.numbers("seconds.total")


def seconds_of_training(facts: RunFacts) -> Numbers:
    """Time of each step without evaluation and saving."""
    aside = np.nan_to_num(facts.numbers("seconds.evaluation")) + np.nan_to_num(facts.numbers("seconds.checkpoint"))
    return seconds_per_step(facts) - aside


def elapsed_hours(facts: RunFacts) -> Numbers:
    """Hours of stepping up to and with each step of the final history; time between attempts left out."""
    return np.cumsum(np.nan_to_num(seconds_per_step(facts), nan=np.nan)) / 3600


def places_of(facts: RunFacts) -> dict[str, Numbers]:
    """Where each step lies on each axis the page offers."""
    return {
        "step": facts.numbers("step"),
        "tokens": facts.numbers("tokens_seen"),
        "hours": elapsed_hours(facts),
    }


def add_training_charts(payload: Payload, facts: RunFacts, prefix: str, colours: Mapping[str, int]) -> list[str]:
    """Add the run's charts as `prefix-loss` and so on; returns the names of those that have data.

    `colours` are those of the sources.
    """
    if facts.steps.is_empty():
        return []
    sampling = Sampling(facts.steps.height)
    axis = f"{prefix}-steps"
    payload.add_axis(axis, {unit: at[sampling.places] for unit, at in places_of(facts).items()})
    payload.marks[axis] = _marks(facts)
    charts = {
        "loss": _single(facts, "loss", "training loss", axis, sampling, unit="nats per token", main=True),
        "loss-by-source": _by_source(facts, axis, sampling, colours),
        "gradient-norm": _single(
            facts,
            "gradient_norm",
            "gradient norm",
            axis,
            sampling,
            limit=facts.setting("training", "gradient_clip"),
        ),
        "gradient-norm-by-module": _module_norms(facts),
        "learning-rate": _single(facts, "learning_rate", "learning rate", axis, sampling, smooth=False, floor=0),
        "tokens-per-second": _throughput(facts, axis, sampling),
        "time-per-step": _phases(payload, facts, prefix),
        "memory": _memory(facts, axis, sampling),
        "loss-scale": _single(facts, "loss_scale", "loss scale", axis, sampling, smooth=False, format="count"),
        "dead-updates": _single(facts, "dead_updates", "dead updates", axis, sampling, unit="share of weights"),
    }
    present = [name for name, chart in charts.items() if chart is not None]
    payload.charts |= {f"{prefix}-{name}": chart for name in present if (chart := charts[name]) is not None}
    return present


def _single(
    facts: RunFacts, column: str, label: str, axis: str, sampling: Sampling, unit: str = "", **options: Any
) -> dict[str, Any] | None:
    values = facts.numbers(column)
    # A loss that was never finite still gets its chart: that it was NaN is what there is to see.
    if column not in facts.steps.columns or facts.steps[column].is_null().all():
        return None
    return line_chart([line(label, axis, sampling, values)], unit, **{"smooth": True, **options})


def _by_source(facts: RunFacts, axis: str, sampling: Sampling, colours: Mapping[str, int]) -> dict[str, Any] | None:
    names = names_of(facts.steps, "loss_by_source")
    if len(names) < 2:
        return None
    lines = [line(name, axis, sampling, facts.numbers(f"loss_by_source.{name}"), colours[name]) for name in names]
    return line_chart(lines, "nats per token", smooth=True)


def _throughput(facts: RunFacts, axis: str, sampling: Sampling) -> dict[str, Any] | None:
    seconds = seconds_of_training(facts)
    rate = facts.numbers("tokens") / np.where(seconds > 0, seconds, np.nan)
    if not np.isfinite(rate).any():
        return None
    curve = line("tokens per second", axis, sampling, rate)
    return line_chart([curve], "without evaluation and saving", smooth=True, floor=0, format="count")


def _memory(facts: RunFacts, axis: str, sampling: Sampling) -> dict[str, Any] | None:
    lines = []
    for colour, rank in enumerate(facts.record.ranks[:16]):
        if rank == 0:
            values = facts.numbers("memory_peak_bytes")
            lines.append(line("rank 0", axis, sampling, values, colour))
            continue
        table = facts.record.steps(["memory_peak_bytes"], rank=rank)
        joined = facts.steps.select("step").join(table, on="step", how="left", maintain_order="left")
        values = joined["memory_peak_bytes"].cast(float).fill_null(float("nan")).to_numpy()
        lines.append(line(f"rank {rank}", axis, sampling, values, colour))
    if not np.isfinite(facts.numbers("memory_peak_bytes")).any():
        return None
    return line_chart(lines, "", floor=0, format="bytes")


def _phases(payload: Payload, facts: RunFacts, prefix: str) -> dict[str, Any] | None:
    """Mean seconds of each phase, one upon the other; what no phase counted is `other`."""
    total = seconds_per_step(facts)
    if not np.isfinite(total).any():
        return None
    sampling = Sampling(facts.steps.height, _STACK_PIXELS)
    starts = np.arange(sampling.buckets) * sampling.size
    axis = f"{prefix}-phases"
    payload.add_axis(axis, {unit: at[starts] for unit, at in places_of(facts).items()})
    names = names_of(facts.steps, "seconds")
    known = [name for name in (*PHASES, *names) if name in names and name != "total"]
    layers = {name: np.nan_to_num(facts.numbers(f"seconds.{name}")) for name in dict.fromkeys(known)}
    layers["other"] = np.clip(total - sum(layers.values(), np.zeros(total.size)), 0, None)
    packed = [
        {
            "label": name,
            "axis": axis,
            "colour": _PHASE_COLOURS.get(name, 9),
            "raw": pack_float32(sampling.means(values)),
        }
        for name, values in layers.items()
        if np.nansum(values) > 0
    ]
    return {"kind": "stack", "lines": packed, "unit": "seconds", "format": "seconds", "floor": 0}


def _module_norms(facts: RunFacts) -> dict[str, Any] | None:
    table = facts.module_norms
    modules = names_of(table, "gradient_norm_by_module")
    if table.is_empty() or not modules:
        return None
    rows = {
        module: table[f"gradient_norm_by_module.{module}"].fill_null(float("nan")).to_numpy() for module in modules
    }
    return heat_map(table["step"].cast(float).to_numpy(), rows)


def _marks(facts: RunFacts) -> dict[str, Any]:
    """Events worth a line in the charts, and the steps whose loss or gradient was not finite."""
    steps = facts.numbers("step")
    broken = np.zeros(steps.size, dtype=bool)
    for column in ("loss", "gradient_norm"):
        if column in facts.steps.columns:
            broken |= (~np.isfinite(facts.numbers(column))) & ~facts.steps[column].is_null().to_numpy()
    places = steps[broken]
    if places.size > LARGEST_MARK_COUNT:
        places = places[np.linspace(0, places.size - 1, LARGEST_MARK_COUNT).astype(int)]
    events = [
        {"step": event["step"], "label": words(str(event["event"]))}
        for event in facts.events
        if event.get("event") in _MARKED_EVENTS and event.get("step") is not None
    ]
    events = events[-_MARKED:] + [
        {"step": finding.first_step, "label": f"{finding.severity}: {words(finding.kind)}"}
        for finding in facts.diagnosis.findings[:_MARKED]
        if finding.severity != "note" and finding.first_step is not None
    ]
    return {"events": events, "non_finite": places.tolist()}
