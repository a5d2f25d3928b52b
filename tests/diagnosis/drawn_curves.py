"""Drawn runs without incident, and with one of a given strength planted into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from stoker.diagnosis import RunRows

Draw = np.random.Generator
Array = np.ndarray


@dataclass
class DrawnRun:
    """Columns of a run's rows, which incidents change in place."""

    columns: dict[str, Array]
    draw: Draw

    @property
    def rows(self) -> int:
        return self.columns["step"].size

    def as_rows(self) -> RunRows:
        return RunRows(table=pl.DataFrame(self.columns))


def draw_run(seed: int, rows: int | None = None) -> DrawnRun:
    """A loss that falls like a power of the step towards a floor, with autocorrelated and heavy-tailed noise, a
    schedule whose decay lowers it, broad bumps of the data's order, and sometimes a change of the mixture."""
    draw = np.random.default_rng(seed)
    rows = rows or int(draw.integers(1200, 4000))
    spacing = int(draw.choice([1, 1, 5, 10]))
    steps = spacing * np.arange(1, rows + 1)
    rate = _schedule(draw, rows)
    learnt = np.cumsum(rate) / rate.max() * spacing
    floor, exponent = draw.uniform(1.5, 2.3), draw.uniform(0.25, 0.5)
    level = floor + (draw.uniform(9.5, 12.5) - floor) * (1 + learnt / draw.uniform(20, 200)) ** -exponent
    decayed = 1 - rate / np.maximum.accumulate(rate)
    logs = np.log(level) - draw.uniform(0.02, 0.06) * decayed + _bumps(draw, rows) + _mixture_change(draw, rows)
    loss = np.exp(logs + _noise(draw, rows, draw.uniform(0.003, 0.04)))
    seconds = np.exp(draw.uniform(-2, 2) + _noise(draw, rows, draw.uniform(0.003, 0.04)))
    norm = draw.uniform(0.1, 1.0) * (1 + 4 * np.exp(-np.arange(rows) / 50)) * np.exp(_noise(draw, rows, 0.2))
    by_source = {
        f"loss_by_source.{name}": loss
        * np.exp(draw.uniform(-0.3, 0.3) + _noise(draw, rows, draw.uniform(0.005, 0.05)))
        for name in ("english", "中文", "code")
    }
    columns = {
        "step": steps,
        "time": 1.7e9 + np.cumsum(seconds * spacing),
        "attempt": np.ones(rows, dtype=int),
        "loss": loss,
        **by_source,
        "gradient_norm": norm,
        "learning_rate": rate,
        "tokens": np.full(rows, 2**19),
        "first_sample": (steps - 1) * 256,
        "last_sample": steps * 256,
        "seconds.forward": 0.3 * seconds,
        "seconds.backward": 0.6 * seconds,
        "seconds.total": seconds,
        "memory_peak_bytes": 2.0**34 * np.exp(0.01 * draw.standard_normal(rows)),
        "ranks": np.full(rows, 8),
    }
    return DrawnRun(columns, draw)


def _schedule(draw: Draw, rows: int) -> Array:
    warmup = int(rows * draw.uniform(0.005, 0.05)) + 1
    share = np.clip((np.arange(rows) - warmup) / (rows - warmup), 0, 1)
    shapes = {
        "cosine": 0.1 + 0.45 * (1 + np.cos(np.pi * share)),
        "wsd": np.clip((1 - share) / 0.15, 0.02, 1),
        "constant": np.ones(rows),
        "linear": 1 - 0.99 * share,
    }
    factor = shapes[str(draw.choice(list(shapes)))]
    return draw.uniform(1e-4, 1e-3) * factor * np.minimum(1, np.arange(1, rows + 1) / warmup)


def _noise(draw: Draw, rows: int, deviation: float) -> Array:
    """A share of it lasts from row to row; small batches have heavy tails."""
    freedom = draw.choice([3, 5, np.inf])
    fresh = draw.standard_normal(rows) if freedom == np.inf else draw.standard_t(freedom, rows)
    memory, share = draw.uniform(0.5, 0.97), draw.uniform(0, 0.5)
    kicks = draw.standard_normal(rows) * np.sqrt(1 - memory**2)
    lasting = np.zeros(rows)
    for row in range(1, rows):
        lasting[row] = memory * lasting[row - 1] + kicks[row]
    return deviation * ((1 - share) * fresh + share * lasting)


def _bumps(draw: Draw, rows: int) -> Array:
    places = np.arange(rows)
    total = np.zeros(rows)
    for _ in range(int(draw.integers(0, 4))):
        width = rows * draw.uniform(0.01, 0.08)
        total += draw.uniform(-0.025, 0.025) * np.exp(-(((places - draw.uniform(0, rows)) / width) ** 2))
    return total


def _mixture_change(draw: Draw, rows: int) -> Array:
    """In a third of the runs the mixture changes, at once or over some rows."""
    if draw.random() > 0.33:
        return np.zeros(rows)
    begin, width = rows * draw.uniform(0.3, 0.8), draw.uniform(1, 60)
    return draw.uniform(-0.08, 0.06) * np.clip((np.arange(rows) - begin) / width, 0, 1)


def _place(run: DrawnRun) -> int:
    return int(run.rows * run.draw.uniform(0.3, 0.75))


def _raise_losses(run: DrawnRun, rise: Array) -> None:
    for name in run.columns:
        if name.startswith("loss"):
            run.columns[name] = run.columns[name] * np.exp(rise)


def plant_spike(run: DrawnRun, strength: float) -> int:
    """The loss rises by `strength` of its logarithm within three rows and falls back over some."""
    at, after = _place(run), np.arange(run.rows)
    rise = np.clip((after - at + 1) / run.draw.integers(1, 4), 0, 1) * np.exp(
        -np.maximum(after - at - 3, 0) / run.draw.uniform(2, 15)
    )
    _raise_losses(run, strength * rise)
    return at


def plant_divergence(run: DrawnRun, strength: float) -> int:
    """It rises over up to 200 rows and stays."""
    at = _place(run)
    _raise_losses(run, strength * np.clip((np.arange(run.rows) - at + 1) / run.draw.integers(3, 200), 0, 1))
    return at


def plant_step_drop(run: DrawnRun, strength: float) -> int:
    at = _place(run)
    _raise_losses(run, -strength * (np.arange(run.rows) >= at))
    return at


def plant_plateau(run: DrawnRun, strength: float) -> int:
    """From a row on the loss only keeps `1 - strength` of its fall; the learning rate is constant."""
    at = int(run.rows * run.draw.uniform(0.12, 0.3))
    places = np.arange(run.rows) + 1.0
    exponent = run.draw.uniform(0.08, 0.2)
    fall = (
        -exponent * np.log(np.maximum(places / places[at], 1e-9)) * np.where(places > places[at], 1 - strength, 1)
    )
    run.columns["loss"] = 4 * np.exp(np.minimum(fall, 1.0) + _noise(run.draw, run.rows, 0.01))
    run.columns["learning_rate"] = np.minimum(1, places / 50) * 3e-4
    return at


def plant_nan(run: DrawnRun, strength: float) -> int:
    at = _place(run)
    run.columns["loss"][at : at + int(strength)] = np.nan
    return at


def plant_gradient_growth(run: DrawnRun, strength: float) -> int:
    """Gradients grow by `strength` over eight rows; nothing else happens."""
    at = _place(run)
    run.columns["gradient_norm"][at : at + 8] *= strength ** np.linspace(0.3, 1, 8)
    return at


def plant_throughput_drop(run: DrawnRun, strength: float) -> int:
    at = _place(run)
    spacing = np.diff(run.columns["step"], prepend=0)
    run.columns["seconds.backward"][at:] *= 1 + (strength - 1) / 0.6
    run.columns["seconds.total"][at:] *= strength
    run.columns["time"] = 1.7e9 + np.cumsum(run.columns["seconds.total"] * spacing)
    return at


def plant_stall(run: DrawnRun, strength: float) -> int:
    """`strength` times a row's usual time passes, and 60 seconds at least."""
    at = _place(run)
    usual = float(np.median(np.diff(run.columns["time"])))
    run.columns["time"][at:] += max(strength * usual, 60.0)
    return at - 1


def plant_memory_growth(run: DrawnRun, strength: float) -> int:
    run.columns["memory_peak_bytes"] *= 1 + strength * np.linspace(0, 1, run.rows)
    return int(0.1 * run.rows)


def plant_source_drift(run: DrawnRun, strength: float) -> int:
    at = _place(run)
    run.columns["loss_by_source.code"][at:] *= np.exp(strength)
    return at


PLANTED: dict[str, tuple[Callable[[DrawnRun, float], int], tuple[str, ...], tuple[float, ...]]] = {
    "spike": (plant_spike, ("spike",), (0.1, 0.2, 0.4, 0.8, 1.6)),
    "divergence": (plant_divergence, ("divergence",), (0.1, 0.2, 0.4, 0.8)),
    "step_drop": (plant_step_drop, ("step_drop",), (0.05, 0.1, 0.2, 0.4)),
    "plateau": (plant_plateau, ("plateau",), (0.9, 1.0)),
    "nan": (plant_nan, ("nan",), (1, 5)),
    "gradient_growth": (plant_gradient_growth, ("gradient_growth",), (3, 5, 10, 100)),
    "throughput_drop": (plant_throughput_drop, ("throughput_drop",), (1.1, 1.2, 1.5, 3)),
    "stall": (plant_stall, ("stall",), (15, 40, 200)),
    "memory_growth": (plant_memory_growth, ("memory_growth",), (0.05, 0.1, 0.3, 1)),
    "source_drift": (plant_source_drift, ("source_drift",), (0.05, 0.1, 0.2, 0.4)),
}
"""How an incident is planted, as which kinds it counts as found, and in which strengths it is drawn."""
