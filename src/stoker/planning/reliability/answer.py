"""All that is said of a run: formula and simulation side by side, the best interval, what each change is worth."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker.errors import BadInput
from stoker.planning.reliability.changes import (
    SWEEPS,
    Point,
    Row,
    Worth,
    best_spares,
    hourly_cost,
    point_of,
    sweep,
    worths,
)
from stoker.planning.reliability.description import RunDescription
from stoker.planning.reliability.formula import goodput_of
from stoker.planning.reliability.optimum import BestInterval, best_intervals, with_intervals
from stoker.planning.reliability.process import DAY, HOUR, Process
from stoker.planning.reliability.runs import Runs, simulate

QUANTILES = (0.05, 0.5, 0.95)
_SIGMAS = 1.96
LEAST_GOODPUT = 0.01
"""A run with less makes next to no headway, and is not simulated."""
_HOPELESS = 8.0
"""With so many failures expected in one restart it succeeds once in thousands of attempts: nothing to simulate."""


@dataclass(frozen=True)
class Simulated:
    """Of all simulated runs."""

    runs: int
    share: float
    """Of each run that was followed; below 1 where it has too many failures."""
    goodput: float
    goodput_error: float | None
    """The mean of all such runs lies so near it, with 95% confidence; None of one run alone."""
    effective: float
    losses: dict[str, float]
    goodput_quantiles: dict[float, float]
    days: dict[float, float]
    """Quantiles of the days until the work is done (or that were asked for)."""
    cost: dict[float, float]
    interruptions: float
    """Mean of a whole run."""
    interruption_quantiles: dict[float, float]
    by_kind: dict[str, float]
    """Mean number of failures in a whole run."""
    groups: float
    committed: float


@dataclass(frozen=True)
class Answer:
    """What `stoker simulate` says."""

    run: RunDescription
    process: Process
    point: Point
    simulated: Simulated | None
    """None where the run makes next to no headway."""
    intervals: list[BestInterval]
    spares: int
    """With which the work costs least."""
    at_best_spares: Point
    worths: list[Worth]
    sweeps: dict[str, list[Row]]

    @property
    def mtbf_hours(self) -> float:
        """Mean time between failures while the run trains."""
        return math.inf if self.process.rate == 0 else 1 / self.process.rate / HOUR

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        point = self.point
        return {
            "description": self.run.with_derived().model_dump(mode="json"),
            "kinds": self._kinds(),
            "nodes": self.process.nodes,
            "spare_nodes": self.process.spares,
            "mtbf_hours": self.mtbf_hours,
            "interruptions_per_day": point.goodput.interruptions_per_day,
            "goodput": point.goodput.goodput,
            "effective_training_time": point.goodput.effective,
            "losses": dict(point.goodput.losses),
            "groups": point.goodput.groups,
            "steps_committed": point.goodput.committed,
            "days": point.days,
            "cost": point.cost,
            "cost_per_hour": hourly_cost(self.run),
            "step_seconds": self.process.step,
            "slowest_of_all": dataclasses.asdict(self.process.slowness),
            "checkpoints": [dataclasses.asdict(interval) for interval in self.intervals],
            "simulated": None if self.simulated is None else dataclasses.asdict(self.simulated),
            "best_spares": {"count": self.spares, **_of_point(self.at_best_spares)},
            "worth": [dataclasses.asdict(worth) for worth in self.worths],
            "sweeps": {
                what: [
                    {"value": row.value, "given": row.given, "best": row.best, **_of_point(row.point)}
                    for row in rows
                ]
                for what, rows in self.sweeps.items()
            },
        }

    def _kinds(self) -> list[dict[str, Any]]:
        """What holds for each kind of failure, wherever it is said."""
        process = self.process
        return [
            {
                "name": name,
                "per_day_of_training": float(process.rates[kind]) * DAY,
                "detection_seconds": float(process.detection[kind]),
                "restart_seconds": float(process.restart[kind]),
                "returns_to": process.levels[level].where if level >= 0 else None,
            }
            for kind, (name, level) in enumerate(zip(process.names, process.levels_of.tolist(), strict=True))
        ]


def _of_point(point: Point) -> dict[str, Any]:
    return {"goodput": point.goodput.goodput, "days": point.days_of_work, "cost": point.cost_of_work}


def answer(
    run: RunDescription,
    runs: int,
    seed: int,
    sweeps: Sequence[str] = (),
    advance: Callable[[float], object] = lambda share: None,
) -> Answer:
    """Formula, simulation and the worth of changes for `run`. The same seed gives the same answer."""
    for what in sweeps:
        if what not in SWEEPS:
            raise BadInput(f"--sweep: expected one of {', '.join(SWEEPS)}, got {what!r}")
    process = with_intervals(run)
    count, at_best = best_spares(run)
    return Answer(
        run=run,
        process=process,
        point=point_of(run),
        simulated=_simulated(run, process, runs, seed, advance),
        intervals=best_intervals(run, process),
        spares=count,
        at_best_spares=at_best,
        worths=worths(run),
        sweeps={what: sweep(run, what) for what in sweeps},
    )


def _simulated(
    run: RunDescription, process: Process, runs: int, seed: int, advance: Callable[[float], object]
) -> Simulated | None:
    longest = max([process.attempt(kind, int(level)) for kind, level in enumerate(process.levels_of)], default=0.0)
    if process.rate * longest > _HOPELESS or goodput_of(process).goodput < LEAST_GOODPUT:
        return None
    work = None if run.work_days is None else run.work_days * DAY
    wall = run.wall_days * DAY if run.wall_days else None
    return _summary(run, process, simulate(process, runs, seed, work, wall, advance), work)


def _summary(run: RunDescription, process: Process, drawn: Runs, work: float | None) -> Simulated:
    wall = float(drawn.wall.sum())
    days = (drawn.wall if work is None else work / np.maximum(drawn.goodput, 1e-12)) / DAY
    whole = days * DAY / drawn.wall
    interruptions = drawn.interruptions * whole
    return Simulated(
        runs=len(drawn.wall),
        share=drawn.share,
        goodput=float(drawn.useful.sum()) / wall,
        goodput_error=_error(drawn),
        effective=float(drawn.kept.sum()) / wall,
        losses={cause: float(seconds.sum()) / wall for cause, seconds in drawn.losses.items()},
        goodput_quantiles=_quantiles(drawn.goodput),
        days=_quantiles(days),
        cost=_quantiles(days * 24 * hourly_cost(run)),
        interruptions=float(interruptions.mean()),
        interruption_quantiles=_quantiles(interruptions),
        by_kind={
            name: float(count)
            for name, count in zip(process.names, (drawn.by_kind * whole[:, None]).mean(axis=0), strict=True)
        },
        groups=float(drawn.groups.mean()),
        committed=float(drawn.committed.mean()),
    )


def _error(drawn: Runs) -> float | None:
    """Of a ratio of sums over independent runs."""
    count = len(drawn.wall)
    if count < 2:
        return None
    beside = drawn.useful - drawn.useful.sum() / drawn.wall.sum() * drawn.wall
    return float(_SIGMAS * beside.std(ddof=1) / drawn.wall.mean() / math.sqrt(count))


def _quantiles(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[float, float]:
    return {q: float(value) for q, value in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)}
