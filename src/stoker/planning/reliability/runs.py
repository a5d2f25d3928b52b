"""Many runs of one process at once, from event to event: the Monte Carlo that the formula is held against.

Between events a run's speed does not change, so events are all there is to draw: a failure, a node that becomes
slow or is found to be, a node or group that comes back, a planned interruption. Entry r of every array is of run r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.planning.reliability.copies import Copies, Floats, Indices
from stoker.planning.reliability.formula import CAUSES, failures_together, goodput_of
from stoker.planning.reliability.process import Process
from stoker.planning.reliability.slowest import draw_maximum, expected_maximum
from stoker.planning.reliability.spacing import Schedule
from stoker.planning.reliability.spares import broken_nodes, share_in_use

_MOST_EVENTS = 2_000
"""That one stretch of a run is followed for: all its stretches draw one at a time, so it is a matter of seconds."""
_MOST_DRAWN = 1_000_000
"""Events of all runs together; more would not tell more."""
_BEYOND = 2
"""So many times what was expected are drawn before runs that get nowhere are left where they are."""
_LEAST_GOODPUT = 1e-3
_MOST_STRETCHES, _WIDEST = 32, 6400
_FEWEST_FAILURES = 100
_REPAIRS, _COPIES = 5, 50
"""A stretch is as long as so many mean times of a repair, and as so many intervals of the farthest copies, or
longer, and has so many failures or more: what it begins and ends with does not count then."""
_MOST_IN_A_CHAIN = 10_000
_FAILS, _PLANNED, _SLOWS, _FOUND, _NODE_BACK, _GROUP_BACK = range(6)


@dataclass(frozen=True)
class Runs:
    """What became of each run, in seconds."""

    wall: Floats
    useful: Floats
    """Work kept, in the time an average rank needs for it undisturbed and with all groups."""
    kept: Floats
    """Time in steps that were kept."""
    losses: dict[str, Floats]
    interruptions: Floats
    by_kind: NDArray[np.int64]
    """Failures, a row for each run and a column for each kind."""
    groups: Floats
    """Mean share of the groups that take part."""
    committed: Floats
    """Share of the steps begun that no leaving group spoiled."""
    share: float
    """Of the work or wall time that was asked for."""

    @property
    def goodput(self) -> Floats:
        """Of each run."""
        return self.useful / self.wall


def simulate(
    process: Process,
    runs: int,
    seed: int,
    ideal_seconds: float | None = None,
    wall_seconds: float | None = None,
    advance: Callable[[float], object] = lambda share: None,
) -> Runs:
    """Simulate `runs` runs until each has done so much work, or for so long.

    A run with more failures than can be simulated is followed for its first part, and `share` says how much that
    is. `advance` hears what further share is done.
    """
    wanted = ideal_seconds if ideal_seconds is not None else wall_seconds
    assert wanted is not None
    together = failures_together(process)
    rate = process.rate * together + process.planned + 2 * process.slowing
    if ideal_seconds is not None:
        rate /= max(goodput_of(process).goodput, _LEAST_GOODPUT)
    followed = min(1.0, _MOST_DRAWN / runs / max(1.0, wanted * rate))
    stretches = _stretches(process, runs, wanted * followed, rate)
    most = min(_MOST_EVENTS * stretches, _MOST_DRAWN / runs)
    share = min(1.0, most / max(1.0, wanted * rate))
    state = _State(process, runs, stretches, seed, wanted * share / stretches, by_work=ideal_seconds is not None)
    done = 0.0
    while state.active.any() and state.draws < _BEYOND * _MOST_EVENTS:
        state.to_next_event()
        advance(state.progress - done)
        done = state.progress
    return state.outcome(share)


def _stretches(process: Process, runs: int, wanted: float, rate: float) -> int:
    """Parts that a long run is simulated in side by side. Each begins as the run is in its steady state."""
    slowest = 1 / min(process.repair, process.finding)
    copy = max((level.interval + level.stall for level in process.levels), default=process.step)
    least = max(_FEWEST_FAILURES / max(rate, 1e-300), _REPAIRS * slowest, _COPIES * copy)
    most = min(wanted / least, _WIDEST / runs, _MOST_STRETCHES)
    return max(1, int(most))


class _State:
    """All runs at one moment each; a stretch of a run has an entry of its own."""

    def __init__(
        self, process: Process, runs: int, stretches: int, seed: int, wanted: float, by_work: bool
    ) -> None:
        self.process = process
        self._stretches = stretches
        self.random = np.random.default_rng(seed)
        self.slowness = np.repeat(self._draw_slowness(runs), stretches)
        runs *= stretches
        self.copies = Copies(process, runs)
        self.active = np.ones(runs, dtype=bool)
        self.draws = 0
        self._wanted, self._by_work = wanted, by_work
        self._speed_of = self._speeds_by_missing()
        self._attempts = np.array(
            [
                [process.attempt(kind, level) for level in range(-1, len(process.levels))]
                for kind in range(len(process.rates))
            ]
        )
        self._shares = np.cumsum(process.rates) / process.rate if process.rate else np.ones(len(process.rates))
        self.wall: Floats = np.zeros(runs)
        self.useful: Floats = np.zeros(runs)
        self.kept: Floats = np.zeros(runs)
        self.costs: dict[str, Floats] = {cause: np.zeros(runs) for cause in CAUSES}
        self.by_kind = np.zeros((runs, len(process.rates)), dtype=np.int64)
        self._training, self._groups, self._steps, self._spoiled = (np.zeros(runs) for _ in range(4))
        chain = broken_nodes(process, process.breaking + process.slowing)
        self.broken: Indices = self.random.choice(len(chain.probability), runs, p=chain.probability).astype(
            np.int64
        )
        self.slow: Indices = self.random.poisson(process.slowing / process.finding, runs).astype(np.int64)
        self.away: Indices = np.zeros(runs, dtype=np.int64)
        self._schedule: Schedule | None = None
        if process.injected:
            self._schedule = Schedule(process.description.failures.spacing, 1 / process.rate, runs, self.random)
        self._leaving = 0.0 if self._schedule else float(process.rates[process.levels_of < 0].sum())
        self._pause: Floats = np.zeros(runs)
        """Seconds that the others still wait for a group that leaves or comes back, before they train on."""
        self._wait_for_nodes(np.arange(runs))

    def _speeds_by_missing(self) -> Floats:
        process = self.process
        most = process.groups if process.per_step else process.nodes
        return share_in_use(process, np.arange(most + 1))

    def _draw_slowness(self, runs: int) -> Floats:
        """Ranks differ for good: each run has a slowest of its own."""
        run = self.process.description
        drawn = draw_maximum(run.accelerators, self.random.random(runs)) - expected_maximum(run.accelerators)
        both = np.hypot(run.stragglers.spread, run.stragglers.jitter)
        own = run.stragglers.spread**2 / both if both else 0.0
        return np.maximum(self.process.slowness.total + own * drawn, 0.0)

    @property
    def progress(self) -> float:
        """Of the run that has got least far."""
        return float(min(1.0, (self.useful if self._by_work else self.wall).min() / self._wanted))

    def speed(self, which: Indices | slice = slice(None)) -> Floats:
        """Share of the groups that train."""
        missing = np.maximum(self.broken[which] - self.process.spares, 0) + self.away[which]
        return self._speed_of[np.minimum(missing, len(self._speed_of) - 1)]

    def to_next_event(self) -> None:
        """Draw each run's next event, let it train until then, and let it happen."""
        process, random = self.process, self.random
        self.draws += 1
        speed = self.speed()
        short = np.maximum(self.broken - process.spares, 0)
        returning = np.where(short > 0, self.broken * process.repair + short * process.replacement, 0.0)
        rates = np.stack(
            [
                process.rate * speed * (self._schedule is None),
                np.full(len(speed), process.planned),
                np.full(len(speed), process.slowing),
                self.slow * process.finding,
                returning,
                self.away / process.group_absence,
            ]
        )
        edges = np.cumsum(rates, axis=0)
        total = np.maximum(edges[-1], 1e-300)
        seconds = random.exponential(size=len(speed)) / total
        event = (random.random(len(speed)) * total >= edges).sum(axis=0)
        if self._schedule is not None:
            until = np.maximum(self._schedule.next - self.wall, 0.0)
            event = np.where(until <= seconds, _FAILS, event)
            seconds = np.minimum(until, seconds)
        ended = self._train(np.where(self.active, seconds, 0.0), speed)
        event = np.where(self.active & ~ended, event, -1)
        self.active &= ~ended
        self._happen(event, speed)

    def _train(self, seconds: Floats, speed: Floats) -> NDArray[np.bool_]:
        """Let so much uptime pass, or less where a run ends; returns which ended."""
        slowed = 1 + self.process.description.stragglers.slowdown * (self.slow > 0)
        left = self._wanted - (self.useful if self._by_work else self.wall)
        per_second = speed / slowed / (1 + self.slowness)
        if self._by_work:  # how long the rest takes, stalls included
            copies = self.copies
            work = copies.work + left / np.maximum(per_second, 1e-300)
            limit = np.maximum(copies.uptime_at(np.minimum(work, 1e15)) - copies.uptime, 0.0) + self._pause
        else:
            limit = np.maximum(left, 0.0)
        ended = self.active & (seconds >= limit)
        seconds = np.where(ended, limit, seconds)
        paused = np.minimum(self._pause, seconds)
        self._pause -= paused
        done = self.copies.advance(seconds - paused)
        self.wall += seconds
        self.costs["restart"] += paused
        self.costs["checkpoint stalls"] += seconds - paused - done
        self._count(slice(None), done, speed, 1 / slowed)
        self._training += done
        self._groups += done * speed
        whole_batch = speed if self.process.description.replicas.batch == "kept" else 1.0
        self._steps += done * whole_batch / self.process.step
        self._mend(np.arange(len(seconds)), seconds, in_uptime=True)
        return ended

    def _count(self, which: Indices | slice, work: Floats, speed: Floats, not_slow: Floats) -> None:
        """Add work to what is kept (or, negative, take it back)."""
        self.kept[which] += work
        self.costs["fewer ranks"][which] += work * (1 - speed)
        trained = work * speed
        self.costs["slow nodes"][which] += trained * (1 - not_slow)
        self.useful[which] += trained * not_slow / (1 + self.slowness[which])

    def _happen(self, event: Indices, speed: Floats) -> None:
        process, run = self.process, self.process.description
        whole = process.common_restart + process.farthest_load
        for number in np.unique(event[event >= 0]).tolist():
            which = np.flatnonzero(event == number)
            if number == _FAILS:
                self._fail(which, speed[which])
            elif number == _PLANNED:
                self._spend(which, "planned", run.planned.pause_seconds)
                self._restart_unasked(which, whole, "planned")
            elif number == _SLOWS:
                self.slow[which] += 1
            elif number == _FOUND:
                self.slow[which] -= 1
                self.broken[which] += 1
                if process.per_step:
                    self.away[which] += 1
                    self._pause[which] += run.replicas.reconfigure_seconds
                    self._wait_for_nodes(which)
                else:
                    self._spend(which, "node swap", run.spares.swap_seconds)
                    self._wait_for_nodes(which)
                    self._restart_unasked(which, whole, "restart")
            elif number == _NODE_BACK:
                self.broken[which] -= 1
                grown = which[self.speed(which) > speed[which]]
                if process.per_step:
                    self._meet(which)
                elif len(grown):
                    self._restart_unasked(grown, whole, "restart")
            else:
                self.away[which] -= 1
                self._meet(which)

    def _meet(self, which: Indices) -> None:
        """The others wait for a group that comes back; those that come back meanwhile are met together."""
        replicas = self.process.description.replicas
        self._pause[which] = np.maximum(self._pause[which], replicas.reconfigure_seconds + replicas.heal_seconds)

    def _fail(self, which: Indices, speed: Floats) -> None:
        """A failure in uptime and all that follow it, until a restart succeeds; then back to what is left."""
        kind = self._draw_kinds(len(which))
        if self._schedule is not None:
            self._schedule.pass_on(which)
        alone = self.process.levels_of[kind] < 0
        not_slow = 1 / (1 + self.process.description.stragglers.slowdown * (self.slow[which] > 0))
        level = np.full(len(which), -1)
        if alone.any():
            step = self.process.step / np.where(self.process.description.replicas.batch == "kept", speed, 1.0)
            self._lose(which[alone], self.copies.lose_step(which[alone], step[alone]), step[alone])
            self._spoiled[which[alone]] += 1
        level = self._chain(which, kind, level)
        for farthest in range(len(self.process.levels)):
            there = level == farthest
            if there.any():
                lost = self.copies.go_back(which[there], farthest)
                self.costs["lost work"][which[there]] += lost
                self._count(which[there], -lost, speed[there], not_slow[there])

    def _lose(self, which: Indices, lost: Floats, step: Floats) -> None:
        """A step's work so far is lost, and its end is waited for."""
        speed, slowed = self.speed(which), 1 + self.process.description.stragglers.slowdown * (self.slow[which] > 0)
        self._count(which, -lost, speed, 1 / slowed)
        self.costs["lost work"][which] += lost
        whole_batch = speed if self.process.description.replicas.batch == "kept" else 1.0
        self._steps[which] -= lost * whole_batch / self.process.step
        self._spend(which, "detection", np.maximum(step - lost, 0.0) + self._pause[which])
        self._pause[which] = 0.0

    def _chain(self, which: Indices, kind: Indices, level: Indices) -> Indices:
        """Detection, wait and restart, until one succeeds; returns the farthest level that is gone back to."""
        process, level = self.process, level.copy()
        swap = process.description.spares.swap_seconds
        position = np.arange(len(which))
        for _ in range(_MOST_IN_A_CHAIN):
            self.draws += 1
            here = which[position]
            level[position] = np.maximum(level[position], process.levels_of[kind])
            self.by_kind[here, kind] += 1
            self.broken[here] += process.replaced[kind]
            self.away[here] += process.levels_of[kind] < 0
            silent, found = process.silent[kind], process.detection[kind]
            self.costs["detection"][here] += found * ~silent
            self.costs["lost work"][here] += found * silent
            swapped = process.replaced[kind] & (level[position] >= 0)
            self._spend(here, "node swap", np.where(swapped, swap, 0.0), before=found)
            self._wait_for_nodes(here)
            seconds = self._attempts[kind, level[position] + 1]
            until = self._until_failure(here)
            fails = until < seconds
            self._spend(here, "restart", np.minimum(until, seconds))
            position = position[fails]
            if not len(position):
                return level
            kind = self._draw_kinds(len(position))
        self.active[which[position]] = False  # it gets nowhere: what has been counted until now stands
        return level

    def _restart_unasked(self, which: Indices, seconds: float, cause: str) -> None:
        """A restart that loses no work; a failure in it begins a chain of its own."""
        until = self._until_failure(which)
        self._spend(which, cause, np.minimum(until, seconds))
        failed = which[until < seconds]
        if len(failed):
            farthest = len(self.process.levels) - 1
            self._chain(failed, self._draw_kinds(len(failed)), np.full(len(failed), farthest))

    def _until_failure(self, which: Indices) -> Floats:
        rate = self.process.rate * self.speed(which) * (self._schedule is None)
        return self.random.exponential(size=len(which)) / np.maximum(rate, 1e-300)

    def _draw_kinds(self, count: int) -> Indices:
        kinds = np.searchsorted(self._shares, self.random.random(count), side="right")
        return np.minimum(kinds, len(self._shares) - 1)

    def _spend(self, which: Indices, cause: str, seconds: float | Floats, before: float | Floats = 0.0) -> None:
        """Let downtime pass, after some (`before`) that is counted already.

        Nodes that break in it are found with the failure it is spent on; in a restart they end it.
        """
        self.costs[cause][which] += seconds
        spent = np.zeros(len(which)) + seconds + before
        self.wall[which] += spent
        if self.process.breaking and cause != "restart":
            there = 1 - np.maximum(self.broken[which] - self.process.spares, 0) / self.process.nodes
            self.broken[which] += self.random.poisson(self.process.breaking * np.maximum(there, 0.0) * spent)
        if self._leaving and cause != "restart":
            self.away[which] += self.random.poisson(self._leaving * self.speed(which) * spent)
        self._mend(which, spent)
        if self._schedule is not None:  # what came in downtime takes a group each and spoils nothing more
            self.away[which] += self._schedule.missed(which, self.wall[which])

    def _mend(self, which: Indices, seconds: Floats, in_uptime: bool = False) -> None:
        """Nodes are repaired and groups come back; in uptime, what makes a run larger is an event instead."""
        process = self.process
        short = np.maximum(self.broken[which] - process.spares, 0)
        chance = -np.expm1(-process.repair * seconds)
        repaired = self.random.binomial(
            self.broken[which], np.where(short > 0, 0.0, chance) if in_uptime else chance
        )
        self.broken[which] -= repaired
        if in_uptime:
            return
        if process.replacement and short.any():
            short = np.maximum(self.broken[which] - process.spares, 0)
            self.broken[which] -= self.random.binomial(short, -np.expm1(-process.replacement * seconds))
        if process.per_step:  # those that come back in a pause are met together, after it
            back = self.random.binomial(self.away[which], -np.expm1(-seconds / process.group_absence))
            self.away[which] -= back
            heal = process.description.replicas.heal_seconds
            self._pause[which] = np.where(back > 0, np.maximum(self._pause[which], heal), self._pause[which])

    def _wait_for_nodes(self, which: Indices) -> None:
        """Wait until enough nodes or groups are there to train."""
        process = self.process
        waiting = which[self.speed(which) == 0]
        while len(waiting):
            short = np.maximum(self.broken[waiting] - process.spares, 0)
            nodes = self.broken[waiting] * process.repair + short * process.replacement
            groups = self.away[waiting] / process.group_absence
            breaks = process.breaking * np.maximum(1 - short / process.nodes, 0.0) * (not process.per_step)
            total = nodes + groups + breaks
            seconds = self.random.exponential(size=len(waiting)) / total
            if not self._by_work:  # a wait of hours may not lengthen the time that is looked at
                seconds = np.minimum(seconds, np.maximum(self._wanted - self.wall[waiting], 0.0))
            self.wall[waiting] += seconds
            self.costs["waiting for a node"][waiting] += seconds
            drawn = self.random.random(len(waiting)) * total
            self.broken[waiting[drawn < nodes]] -= 1
            self.away[waiting[(drawn >= nodes) & (drawn < nodes + groups)]] -= 1
            self.broken[waiting[drawn >= nodes + groups]] += 1
            over = (self.wall[waiting] >= self._wanted) & (not self._by_work)
            waiting = waiting[(self.speed(waiting) == 0) & ~over]

    def outcome(self, share: float) -> Runs:
        """What became of all runs."""
        slowness = self.process.slowness
        trained = self.useful * (1 + self.slowness)
        lasting = slowness.lasting / slowness.total if slowness.total else 0.0
        self.costs["stragglers"] = (trained - self.useful) * lasting
        self.costs["jitter"] = (trained - self.useful) * (1 - lasting)
        begun = np.maximum(self._whole(self._steps + self._spoiled), 1e-300)
        by_kind = self.by_kind.reshape(-1, self._stretches, self.by_kind.shape[1]).sum(axis=1)
        return Runs(
            wall=self._whole(self.wall),
            useful=self._whole(self.useful),
            kept=self._whole(self.kept),
            losses={cause: self._whole(cost) for cause, cost in self.costs.items()},
            interruptions=by_kind.sum(axis=1).astype(np.float64),
            by_kind=by_kind,
            groups=self._whole(self._groups) / np.maximum(self._whole(self._training), 1e-300),
            committed=self._whole(self._steps) / begun if self.process.per_step else np.ones(len(begun)),
            share=share,
        )

    def _whole(self, values: Floats) -> Floats:
        """Of runs, from values of their stretches."""
        whole: Floats = values.reshape(-1, self._stretches).sum(axis=1)
        return whole
