"""Broken nodes as a birth-death chain: how often none stands ready, and how many groups are then missing.

Nodes break at a rate that grows with those in the run; each broken one is repaired after an exponential time, all
at once (a machine-repair queue without a limit of repairers), and each one missing may be got from elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.planning.reliability.process import Process

_ROOTS, _FURTHER = 12, 60
"""States are looked at until so many roots, and some, beyond the mean of a queue that never runs out of nodes."""


@dataclass(frozen=True)
class BrokenNodes:
    """The chain in its steady state. Entry b of an array is of b broken nodes."""

    probability: NDArray[np.float64]
    speed: NDArray[np.float64]
    """Share of the groups that train; 0 where the run waits."""
    breaking: NDArray[np.float64]
    """Rate to the next state, a second."""
    returning: NDArray[np.float64]
    """Rate to the state before."""

    @property
    def waiting(self) -> float:
        """Share of time in which the run cannot train for want of nodes."""
        return float(self.probability[self.speed == 0].sum())

    @property
    def running_speed(self) -> float:
        """Mean share of the groups that train while it is not waiting."""
        running = self.probability[self.speed > 0]
        if running.sum() == 0:  # too improbable for a number: the run always waits
            return 1.0
        return float((self.speed[self.speed > 0] * running).sum() / running.sum())

    @property
    def entries(self) -> float:
        """How often waiting begins, a second."""
        begins = (self.speed[:-1] > 0) & (self.speed[1:] == 0)
        return float((self.probability[:-1] * self.breaking[:-1])[begins].sum())

    @property
    def growths(self) -> float:
        """How often a returning node lets a run that trains train with more groups, a second."""
        grows = (self.speed[1:] > 0) & (self.speed[:-1] > self.speed[1:])
        return float((self.probability * self.returning)[1:][grows].sum())

    def missing(self, spares: int) -> float:
        """Mean number of nodes that are missing from the run."""
        broken = np.arange(len(self.probability))
        return float((self.probability * np.maximum(broken - spares, 0)).sum())

    def waiting_after(self, seconds: float) -> float:
        """Share of time spent waiting, when so many seconds have passed before it is known that it has to be."""
        if self.entries == 0 or self.waiting == 0:  # it never waits, or always
            return self.waiting
        mean = self.waiting / self.entries
        return self.waiting * math.exp(-seconds / mean)


def broken_nodes(process: Process, breaking: float) -> BrokenNodes:
    """The steady state when a whole run loses `breaking` nodes a second."""
    nodes, spares = process.nodes, process.spares
    mean = breaking / process.repair
    most = min(nodes + spares, math.ceil(mean + _ROOTS * math.sqrt(mean) + _FURTHER)) if breaking else 0
    broken = np.arange(most + 1)
    missing = np.maximum(broken - spares, 0)
    births = breaking / nodes * (nodes - missing)
    deaths = broken * process.repair + missing * process.replacement
    logs = np.concatenate(([0.0], np.cumsum(np.log(births[:-1]) - np.log(deaths[1:]))))
    probability = np.exp(logs - logs.max())
    return BrokenNodes(probability / probability.sum(), share_in_use(process, missing), births, deaths)


def share_in_use(process: Process, missing: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of the groups that train with so many nodes missing; 0 where the run waits."""
    run = process.description
    if run.replicas.mode == "fixed":
        return np.where(missing > 0, 0.0, 1.0)
    if run.replicas.mode == "shrink":  # whole groups of the nodes that are left
        groups = (process.nodes - missing) * process.groups // process.nodes
    else:  # each missing node is missing from a group of its own
        groups = process.groups - missing
    return np.where(groups >= run.replicas.minimum, groups / process.groups, 0.0)
