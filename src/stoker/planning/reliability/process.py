"""One description of a run, in rates per second and seconds: what the formula and the simulation both read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stoker.planning.reliability.description import OPTIMAL, Checkpoint, RunDescription
from stoker.planning.reliability.kinds import USUAL_PER_NODE, Kind
from stoker.planning.reliability.slowest import Slowness, slowness_of

DAY = 86400.0
HOUR = 3600.0
_OUTLIVES = {"memory": ("process",), "peer": ("process", "node"), "store": ("process", "node", "job")}


@dataclass(frozen=True)
class Level:
    """Copies of one place, as they are really taken. Seconds."""

    where: str
    interval: float
    """Training between two copies: whole steps, and whole intervals of the nearer level."""
    every: int
    """Intervals of the nearer level (of the nearest: steps) in one of this."""
    stall: float
    write: float
    load: float


@dataclass(frozen=True)
class Process:
    """The run as a stochastic process. Arrays have an entry for each kind; rates are of the whole run, a second."""

    description: RunDescription
    slowness: Slowness
    step: float
    """A step with its stragglers, seconds."""
    levels: tuple[Level, ...]
    names: tuple[str, ...]
    rates: NDArray[np.float64]
    levels_of: NDArray[np.int64]
    """The level each kind goes back to; -1 where one group leaves and the others lose a step."""
    detection: NDArray[np.float64]
    restart: NDArray[np.float64]
    replaced: NDArray[np.bool_]
    silent: NDArray[np.bool_]

    @cached_property
    def rate(self) -> float:
        """Failures of all kinds."""
        return float(self.rates.sum())

    @cached_property
    def nodes(self) -> int:
        """In the run."""
        return self.description.nodes

    @cached_property
    def groups(self) -> int:
        """Data-parallel groups."""
        return self.description.replica_count

    @cached_property
    def per_step(self) -> bool:
        """Groups drop out and come back while the others train."""
        return self.description.replicas.mode == "per_step"

    @cached_property
    def injected(self) -> bool:
        """Failures come at intervals of their own instead of at random."""
        return self.description.failures.spacing != "random" and self.rate > 0

    @cached_property
    def spares(self) -> int:
        """Nodes that stand ready when none is broken."""
        return self.description.spare_count

    @cached_property
    def breaking(self) -> float:
        """Nodes that leave for repair, a second, of a whole run."""
        return float(self.rates[self.replaced].sum())

    @cached_property
    def repair(self) -> float:
        """Rate at which one broken node comes back."""
        return 1 / (self.description.spares.repair_hours * HOUR)

    @cached_property
    def replacement(self) -> float:
        """Rate at which one missing node is got from elsewhere; 0 when it cannot be."""
        hours = self.description.spares.replace_hours
        return 0.0 if hours is None else 1 / (hours * HOUR)

    @cached_property
    def slowing(self) -> float:
        """Nodes that become slow, a second."""
        return self.nodes * self.description.stragglers.slow_nodes_per_1000_node_days / 1000 / DAY

    @cached_property
    def finding(self) -> float:
        """Rate at which one slow node is found."""
        return 1 / (self.description.stragglers.found_after_hours * HOUR)

    @cached_property
    def planned(self) -> float:
        """Planned interruptions, a second."""
        return self.description.planned.per_day / DAY

    @cached_property
    def common_restart(self) -> float:
        """Restart that no failure asked for, without loading."""
        return _restart(self.description, None)

    @cached_property
    def farthest_load(self) -> float:
        """To load from the farthest level."""
        return self.levels[-1].load if self.levels else 0.0

    @cached_property
    def group_absence(self) -> float:
        """Mean seconds that a group stays away after it failed, without waiting for a node; `per_step` alone."""
        leaving = self.levels_of < 0
        if not self.per_step or not self.rates[leaving].sum():
            return max(self.common_restart, 1e-3)
        swap = np.where(self.replaced, self.description.spares.swap_seconds, 0.0)
        away = (self.detection + self.restart + swap)[leaving]
        return float(max(np.average(away, weights=self.rates[leaving]), 1e-3))

    def attempt(self, kind: int, level: int) -> float:
        """Seconds a restart after `kind` takes when it goes back to `level`."""
        if level < 0:
            return self.description.replicas.reconfigure_seconds
        return float(self.restart[kind]) + self.levels[level].load


def process_of(run: RunDescription, intervals: Sequence[float] | None = None) -> Process:
    """The process that `run` describes, with these intervals (seconds of training, a level each) for its own.

    An interval that is to be optimal is the longest that is allowed until it is known.
    """
    stragglers = run.stragglers
    slowness = slowness_of(
        run.accelerators,
        run.accelerators_per_node,
        stragglers.spread,
        stragglers.jitter,
        stragglers.network_jitter,
    )
    step = run.step_seconds * (1 + slowness.total)
    kinds = run.failures.kinds
    return Process(
        description=run,
        slowness=slowness,
        step=step,
        levels=_levels(run, step, intervals),
        names=tuple(kind.name for kind in kinds),
        rates=_rates(run),
        levels_of=np.array([_level_of(run, kind) for kind in kinds], dtype=np.int64),
        detection=np.array([_detection(run, kind) for kind in kinds]),
        restart=np.array([_restart(run, kind) for kind in kinds]),
        replaced=np.array([kind.replaces_node for kind in kinds]),
        silent=np.array([kind.silent for kind in kinds]),
    )


def _levels(run: RunDescription, step: float, intervals: Sequence[float] | None) -> tuple[Level, ...]:
    levels: list[Level] = []
    inner = step
    for position, checkpoint in enumerate(run.checkpoints):
        wanted = intervals[position] if intervals is not None else _given(checkpoint)
        every = max(1, round(wanted / inner))
        inner *= every
        levels.append(
            Level(
                checkpoint.where,
                inner,
                every,
                checkpoint.stall_seconds,
                checkpoint.write_seconds,
                checkpoint.load_seconds,
            )
        )
    return tuple(levels)


def _given(checkpoint: Checkpoint) -> float:
    return DAY if checkpoint.interval_seconds == OPTIMAL else float(checkpoint.interval_seconds)


def _rates(run: RunDescription) -> NDArray[np.float64]:
    kinds = run.failures.kinds
    by_node = np.array([_per_node_day(run, kind) for kind in kinds])
    total = run.failures.per_1000_node_days
    if total is not None and by_node.sum() > 0:
        by_node *= total / 1000 / by_node.sum()
    by_job = np.array([kind.per_day or 0.0 for kind in kinds])
    rates: NDArray[np.float64] = (by_node * run.nodes + by_job) / DAY
    return rates


def _per_node_day(run: RunDescription, kind: Kind) -> float:
    scale = run.accelerators_per_node / USUAL_PER_NODE if kind.grows_with == "accelerators" else 1.0
    return (kind.per_1000_node_days or 0.0) / 1000 * scale


def _level_of(run: RunDescription, kind: Kind) -> int:
    if run.replicas.mode == "per_step" and kind.loses != "job" and not kind.silent:
        return -1
    for position, checkpoint in enumerate(run.checkpoints):
        if kind.loses in _OUTLIVES[checkpoint.where]:
            return position
    return len(run.checkpoints) - 1


def _detection(run: RunDescription, kind: Kind) -> float:
    own = run.recovery.detection_seconds if kind.detection_seconds is None else kind.detection_seconds
    return own * run.failures.detection_factor


def _restart(run: RunDescription, kind: Kind | None) -> float:
    recovery = run.recovery
    own = recovery.restart_seconds if kind is None or kind.restart_seconds is None else kind.restart_seconds
    return own + recovery.restart_seconds_per_1000_nodes * run.nodes / 1000
