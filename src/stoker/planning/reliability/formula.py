"""Goodput of a run by formula: what share of its time is kept, and where the rest goes.

Times are counted per second of *uptime*, in which the run trains or stands still for a copy. Each failure adds
downtime, a chain of restarts of which the last succeeds; work is kept by passages from copy to copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.planning.reliability.injected import cycle_of
from stoker.planning.reliability.passages import Passages, kept_share, passages_of
from stoker.planning.reliability.process import Process
from stoker.planning.reliability.spares import BrokenNodes, broken_nodes

_MOST_ROUNDS, _CLOSE = 8, 1e-5
_MOST_WAITING = 1 - 1e-9
CAUSES = (
    "checkpoint stalls",
    "lost work",
    "detection",
    "restart",
    "node swap",
    "waiting for a node",
    "fewer ranks",
    "slow nodes",
    "stragglers",
    "jitter",
    "planned",
)


@dataclass(frozen=True)
class Goodput:
    """Where a run's time goes, as shares of the wall clock."""

    goodput: float
    """Work kept, in the time an average rank needs for it undisturbed and with all groups."""
    effective: float
    """Effective training time: time in steps that were kept, however long they took."""
    losses: Mapping[str, float]
    """By cause; with `goodput` they add up to 1."""
    interruptions_per_day: float
    """Failures that stop the run or one of its groups, on the wall clock; planned ones not counted."""
    groups: float
    """Share of the data-parallel groups that take part in a step, on average."""
    committed: float
    """Share of the steps begun that are kept, of those that a leaving group could spoil."""


@dataclass(frozen=True)
class _Downtime:
    """Mean seconds that a failure costs, by what they are spent on; entry c: with level c - 1 lost already."""

    detection: NDArray[np.float64]
    silent: NDArray[np.float64]
    swap: NDArray[np.float64]
    restart: NDArray[np.float64]
    failures: NDArray[np.float64]
    """Failures in the chain, the first included."""

    def total(self, level: int) -> float:
        return float((self.detection + self.silent + self.swap + self.restart)[level + 1])


_LEAST_LEAVING = 1e-90
"""Of the share of restarts that end a chain of failures: so small that the run gets nowhere, and that chains within
chains are still numbers."""


@dataclass(frozen=True)
class _Speeds:
    nodes: BrokenNodes
    groups: float
    """Mean share of the groups that train, while the run is not waiting."""
    waiting: float
    pauses: float = 0.0
    """Seconds, per second of training, in which the groups wait for one that leaves or comes back."""


def goodput_of(process: Process) -> Goodput:
    """Goodput by formula. Spares and slow nodes are in their steady state."""
    uptime_share = 1.0
    for _ in range(_MOST_ROUNDS):  # slow nodes are found only in uptime, whose share is not known before
        before = uptime_share
        outcome, uptime_share = _goodput(process, uptime_share)
        if abs(uptime_share - before) < _CLOSE:
            break
    return outcome


def failures_together(process: Process) -> float:
    """Mean failures in one downtime: the one that began it, and those that end its restarts."""
    return float(_downtime(process, process.rates).failures[0]) if process.rate else 0.0


def _goodput(process: Process, uptime_share: float) -> tuple[Goodput, float]:
    speeds = _speeds(process, uptime_share)
    rates = process.rates * speeds.groups * (1 + speeds.pauses)
    if process.injected:
        rates = process.rates / process.rate / cycle_of(process, _step(process, speeds.groups)).training
    down = _downtime(process, rates)
    passages = passages_of(process, rates, speeds.groups)
    kept = kept_share(passages)
    productive = passages.productive
    slow = _slow_nodes_lose(process)
    costs = _costs(process, rates, down, passages, speeds, uptime_share)
    wall = (1 + sum(costs.values())) / (1 - min(speeds.waiting, _MOST_WAITING))
    costs["waiting for a node"] += speeds.waiting * wall
    costs["checkpoint stalls"] += 1 - productive
    costs["lost work"] += productive - kept
    costs["fewer ranks"] = kept * (1 - speeds.groups)
    costs["slow nodes"] = kept * speeds.groups * slow
    trained = kept * speeds.groups * (1 - slow)
    useful = trained / (1 + process.slowness.total)
    lasting = trained * process.slowness.lasting / (1 + process.slowness.total)
    costs["stragglers"], costs["jitter"] = lasting, trained - useful - lasting
    in_chain = down.failures[0] * rates.sum()
    return (
        Goodput(
            goodput=useful / wall,
            effective=kept / wall,
            losses={cause: max(0.0, costs[cause] / wall) for cause in CAUSES},
            interruptions_per_day=float(in_chain) / wall * 86400,
            groups=speeds.groups,
            committed=passages.committed,
        ),
        1 / wall,
    )


def _speeds(process: Process, uptime_share: float) -> _Speeds:
    nodes = broken_nodes(process, process.breaking + process.slowing * uptime_share)
    noticed = 0.0
    if process.breaking:
        noticed = float(np.average(process.detection, weights=process.rates * process.replaced))
        noticed += process.description.spares.swap_seconds  # of the nodes that are there, meanwhile
    if not process.per_step:
        return _Speeds(nodes, nodes.running_speed, nodes.waiting_after(noticed))
    leaving = float(process.rates[process.levels_of < 0].sum()) + process.slowing * uptime_share
    away = leaving / process.groups * process.group_absence
    seen = away * _seen_in_uptime(process, leaving, uptime_share)
    missing = nodes.missing(process.spares) / process.groups
    absent = min(away / (1 + away) + missing, 1 - 1 / process.groups)
    speed = max(1 - seen / (1 + away) - missing, 1 / process.groups)
    returning = seen / (1 + away) * process.groups / process.group_absence
    returning += nodes.missing(process.spares) * process.replacement
    pauses = _pauses(process, speed, returning, leaving, absent)
    return _Speeds(nodes, speed, _too_few(process, absent), pauses)


def _step(process: Process, groups: float) -> float:
    return process.step / (groups if process.description.replicas.batch == "kept" else 1.0)


def _pauses(process: Process, speed: float, returning: float, leaving: float, absent: float) -> float:
    """Groups that come back while the others train are met at once, those of a pause together, after it."""
    if process.injected:
        return cycle_of(process, _step(process, speed)).pauses
    replicas = process.description.replicas
    known = _detection(process) + replicas.reconfigure_seconds  # since the group that failed left
    in_pause = -math.expm1(-known / process.group_absence)
    in_pause -= absent * process.groups * math.expm1(-(known + process.step / 2) / process.group_absence)
    met = replicas.reconfigure_seconds + replicas.heal_seconds
    together = -math.expm1(-returning * met) / met if met else 0.0  # of those that come back in one pause
    share = (
        process.slowing * replicas.reconfigure_seconds
        + together * met
        + leaving * speed * -math.expm1(-in_pause) * replicas.heal_seconds
    )
    return share * (1 + share)  # groups leave and come back in these pauses too


def _detection(process: Process) -> float:
    """Mean seconds from the end of the step that a group failed in until the others know of it."""
    leaves = process.levels_of < 0
    if not process.rates[leaves].sum():
        return 0.0
    return float(np.average(process.detection[leaves], weights=process.rates[leaves]))


def _seen_in_uptime(process: Process, leaving: float, uptime_share: float) -> float:
    """Of a group's absence, the share that falls into uptime, relative to the share of time that is uptime.

    The group leaves with a pause for the others, so the beginning of its absence costs nothing more.
    """
    if not process.rates[process.levels_of < 0].sum():
        return 1.0
    pause = _detection(process) + process.step / 2 + process.description.replicas.reconfigure_seconds
    away = process.group_absence
    soon = uptime_share + (1 - uptime_share) / (1 + away * (leaving + 1 / pause))
    first = uptime_share * math.exp(-pause / away) * soon / uptime_share
    return first + (1 - uptime_share) * math.exp(-pause / 2 / away)


def _too_few(process: Process, absent: float) -> float:
    """Share of time in which fewer groups than allowed are there: a binomial tail."""
    groups, least = process.groups, process.description.replicas.minimum
    if least <= 1 or absent <= 0:
        return 0.0
    absent = min(absent, 1 - 1e-9)
    there = np.arange(least)
    logs = [
        math.lgamma(groups + 1)
        - math.lgamma(k + 1)
        - math.lgamma(groups - k + 1)
        + k * math.log(1 - absent)
        + (groups - k) * math.log(absent)
        for k in there.tolist()
    ]
    return float(min(np.exp(logs).sum(), 1 - 1e-6))


def _downtime(process: Process, rates: NDArray[np.float64]) -> _Downtime:
    """Solves, from the farthest level inwards, E(c) = sum over kinds of what it costs and what may follow it."""
    farthest, total = len(process.levels), float(rates.sum())
    found = {name: np.zeros(farthest + 1) for name in ("detection", "silent", "swap", "restart", "failures")}
    if total == 0:
        return _Downtime(**found)
    swap = process.description.spares.swap_seconds
    for lost in range(farthest, -1, -1):
        own, stays = dict.fromkeys(found, 0.0), 0.0
        for kind, rate in enumerate(rates.tolist()):
            share, level = rate / total, max(lost, int(process.levels_of[kind]) + 1)
            attempt = process.attempt(kind, level - 1)
            fails = 0.0 if process.injected else -math.expm1(-total * attempt)
            own["silent" if process.silent[kind] else "detection"] += share * float(process.detection[kind])
            own["swap"] += share * swap * bool(process.replaced[kind] and level > 0)
            own["restart"] += share * (attempt if process.injected else fails / total)
            own["failures"] += share
            if level == lost:
                stays += share * fails
            else:
                for name in found:
                    own[name] += share * fails * float(found[name][level])
        for name in found:
            found[name][lost] = own[name] / max(1 - stays, _LEAST_LEAVING)
    return _Downtime(**found)


def _costs(
    process: Process,
    rates: NDArray[np.float64],
    down: _Downtime,
    passages: Passages,
    speeds: _Speeds,
    uptime_share: float,
) -> dict[str, float]:
    """Downtime per second of uptime, by cause."""
    costs = dict.fromkeys(CAUSES, 0.0)
    total = float(rates.sum())

    def add(often: float, seconds: float, attempt: float, cause: str) -> None:
        """A stop that no failure asked for: a pause, then a restart, which a failure may end."""
        fails = -math.expm1(-total * attempt)
        costs[cause] += often * (seconds + (fails / total if total else attempt))
        costs["restart"] += often * fails * down.total(len(process.levels) - 1)

    costs["detection"] += total * float(down.detection[0]) + passages.waiting_for_step_end
    costs["lost work"] += total * float(down.silent[0])
    costs["node swap"] += total * float(down.swap[0])
    costs["restart"] += total * float(down.restart[0])
    run = process.description
    whole = process.common_restart + process.farthest_load
    add(process.planned, run.planned.pause_seconds, whole, "planned")
    if process.per_step:
        costs["restart"] += speeds.pauses
    else:
        costs["node swap"] += process.slowing * run.spares.swap_seconds
        add(process.slowing, 0.0, whole, "restart")
        add(speeds.nodes.growths / max(uptime_share, 1e-9), 0.0, whole, "restart")
    return costs


def _slow_nodes_lose(process: Process) -> float:
    """Share of the work that is not done because a slow node is in the run; their number is a Poisson's."""
    there = -math.expm1(-process.slowing / process.finding)
    slowdown = process.description.stragglers.slowdown
    return there * slowdown / (1 + slowdown)
