"""A run with one thing changed: what each change is worth, and tables over a range of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from stoker.planning.reliability.description import LONGEST_SECONDS, OPTIMAL, RunDescription
from stoker.planning.reliability.formula import Goodput, goodput_of
from stoker.planning.reliability.kinds import Kind
from stoker.planning.reliability.optimum import settled, with_intervals
from stoker.planning.reliability.process import HOUR

SWEEPS = ("interval", "spares", "restart", "accelerators")
_MINUTE = 60.0
_MOST_COUNTS, _FINER = 60, 8
_AROUND = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.8, 1.25, 2, 4, 8, 16)


@dataclass(frozen=True)
class Point:
    """A run, by formula."""

    goodput: Goodput
    days: float
    """On the wall clock, until the work is done (or the wall time asked for is over)."""
    cost: float
    """Of those days in dollars, spare nodes included."""
    days_of_work: float
    """On the wall clock, for the work that is asked for (with `wall_days`: that done in them without a change)."""
    cost_of_work: float
    """Of those days, in dollars."""


@dataclass(frozen=True)
class Worth:
    """What a change brings."""

    change: str
    goodput: float
    """With the change."""
    gain: float
    """In goodput; 0.01 is one hundredth of the time."""
    saved: float
    """Dollars less for the same work."""


@dataclass(frozen=True)
class Row:
    """One line of a sweep."""

    value: float
    point: Point
    given: bool
    """This is the run as it is described."""
    best: bool = False
    """This is the optimum, with which the work costs least."""


def point_of(run: RunDescription, work_days: float | None = None) -> Point:
    """Goodput, days and cost of `run` by formula, and those of `work_days` of work in place of its own."""
    goodput = goodput_of(with_intervals(run))
    rate = 24 * hourly_cost(run)
    work = run.work_days if work_days is None else work_days
    if work is None:
        needed = run.wall_days or math.inf
    else:
        needed = math.inf if goodput.goodput <= 0 else work / goodput.goodput
    days = run.wall_days or needed
    return Point(goodput, days, days * rate if rate else 0.0, needed, needed * rate if rate else 0.0)


def hourly_cost(run: RunDescription) -> float:
    """Of all accelerators, those of spare nodes included, in dollars an hour."""
    return (run.accelerators + run.spare_count * run.accelerators_per_node) * run.price_per_accelerator_hour


def worths(run: RunDescription) -> list[Worth]:
    """What each of the usual changes brings, the most first. Intervals stay unless the change is of them."""
    base = point_of(run, work_days := _work_days(run))
    before = base.goodput.goodput
    found = []
    for change, changed in [*_usual(settled(run)), *_of_checkpoints(run)]:
        point = point_of(changed, work_days)
        gain = point.goodput.goodput - before
        saved = base.cost_of_work - point.cost_of_work
        found.append(Worth(change, point.goodput.goodput, gain, saved if math.isfinite(saved) else math.inf))
    return sorted(found, key=lambda worth: -worth.gain)


def _usual(run: RunDescription) -> list[tuple[str, RunDescription]]:
    spares, stragglers = run.spares, run.stragglers
    changes = [
        ("restart faster by a minute", _faster(run, "restart_seconds")),
        ("failures found a minute sooner", _faster(run, "detection_seconds")),
        ("failures rarer by a tenth", _rarer(run, 0.9)),
        ("nodes repaired in half the time", _with(run, "spares", repair_hours=spares.repair_hours / 2)),
    ]
    replaced = stragglers.slow_nodes_per_1000_node_days or any(kind.replaces_node for kind in run.failures.kinds)
    if spares.swap_seconds and replaced:
        faster = _with(run, "spares", swap_seconds=spares.swap_seconds / 2)
        changes.append(("nodes swapped in half the time", faster))
    if run.spare_count < run.nodes:
        changes.append(("one spare node more", _with(run, "spares", count=run.spare_count + 1)))
    if run.spare_count > 0:
        changes.append(("one spare node fewer", _with(run, "spares", count=run.spare_count - 1)))
    if stragglers.slow_nodes_per_1000_node_days:
        sooner = _with(run, "stragglers", found_after_hours=stragglers.found_after_hours / 2)
        changes.append(("slow nodes found in half the time", sooner))
    if stragglers.spread or stragglers.jitter or stragglers.network_jitter:
        even = {name: getattr(stragglers, name) / 2 for name in ("spread", "jitter", "network_jitter")}
        changes.append(("ranks half as uneven", _with(run, "stragglers", **even)))
    return changes


def _of_checkpoints(run: RunDescription) -> list[tuple[str, RunDescription]]:
    changes = []
    if any(checkpoint.interval_seconds != OPTIMAL for checkpoint in run.checkpoints):
        best = tuple(c.model_copy(update={"interval_seconds": OPTIMAL}) for c in run.checkpoints)
        changes.append(("the best checkpoint interval", run.model_copy(update={"checkpoints": best})))
    if any(checkpoint.stall_seconds for checkpoint in run.checkpoints):
        halved = tuple(c.model_copy(update={"stall_seconds": c.stall_seconds / 2}) for c in run.checkpoints)
        changes.append(("half the stall of a checkpoint", run.model_copy(update={"checkpoints": halved})))
    return changes


def _work_days(run: RunDescription) -> float:
    """Of work: what is asked for, or what is done in the wall time, where a run is described by that."""
    return run.work_days or (run.wall_days or 0.0) * goodput_of(with_intervals(run)).goodput


def _with(run: RunDescription, section: str, **values: object) -> RunDescription:
    return run.model_copy(update={section: getattr(run, section).model_copy(update=values)})


def _each_kind(run: RunDescription, change: Callable[[Kind], dict[str, float | None]]) -> RunDescription:
    kinds = tuple(kind.model_copy(update=change(kind)) for kind in run.failures.kinds)
    return _with(run, "failures", kinds=kinds)


def _faster(run: RunDescription, field: str) -> RunDescription:
    def less(seconds: float | None) -> float | None:
        return None if seconds is None else max(0.0, seconds - _MINUTE)

    if field == "detection_seconds":
        run = _detection_as_it_is(run)
    changed = _with(run, "recovery", **{field: less(getattr(run.recovery, field))})
    return _each_kind(changed, lambda kind: {field: less(getattr(kind, field))})


def _detection_as_it_is(run: RunDescription) -> RunDescription:
    """`run` with its detection factor multiplied into the seconds that it scales."""
    factor = run.failures.detection_factor

    def scaled(kind: Kind) -> dict[str, float | None]:
        own = kind.detection_seconds
        return {"detection_seconds": None if own is None else own * factor}

    run = _each_kind(_with(run, "failures", detection_factor=1.0), scaled)
    return _with(run, "recovery", detection_seconds=run.recovery.detection_seconds * factor)


def _rarer(run: RunDescription, factor: float) -> RunDescription:
    def scaled(rate: float | None) -> float | None:
        return None if rate is None else rate * factor

    changed = _with(run, "failures", per_1000_node_days=scaled(run.failures.per_1000_node_days))
    return _each_kind(
        changed,
        lambda kind: {
            "per_1000_node_days": scaled(kind.per_1000_node_days),
            "per_day": scaled(kind.per_day),
        },
    )


def sweep(run: RunDescription, what: str) -> list[Row]:
    """Goodput, days and cost of the same work over a range of one thing.

    The run as it is described is among the lines, and where there is an optimum, so are that and its neighbours.
    """
    if what == "interval" and not run.checkpoints:
        return []
    work_days = _work_days(run)
    if what in ("spares", "restart"):
        run = settled(run)
    own, best, values = _range(run, what)
    rows = []
    for value in sorted({*values, own}):
        changed = run if value == own else _changed(run, what, value)
        # A step of the same length does more work with more accelerators, so the same work is fewer days of it.
        days = work_days * run.accelerators / changed.accelerators
        rows.append(Row(value, point_of(changed, days), value == own, value == best))
    return rows


def _range(run: RunDescription, what: str) -> tuple[float, float | None, list[float]]:
    """The run's own value, the optimum where there is one, and all values of a sweep."""
    if what == "interval":
        return _intervals(run)
    if what == "spares":
        best = best_spares(run)[0]
        broken = with_intervals(run).breaking * run.spares.repair_hours * HOUR
        wanted = [round(broken * factor) for factor in (0, 0.5, 0.75, 1, 1.25, 1.5, 2, 3)]
        near = [best - 1, best, best + 1]
        counts = [float(min(max(0, count), run.nodes)) for count in [*wanted, *near]]
        return float(run.spare_count), float(best), counts
    if what == "restart":
        return run.recovery.restart_seconds, None, [0.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0]
    per_group = run.accelerators // run.replica_count
    sizes = [1024 * 2**power for power in range(8)]
    return float(run.accelerators), None, [float(max(1, size // per_group) * per_group) for size in sizes]


def _intervals(run: RunDescription) -> tuple[float, float | None, list[float]]:
    """Of the farthest copies, as `_range` gives them."""
    *nearer, farthest = run.checkpoints
    free = farthest.model_copy(update={"interval_seconds": OPTIMAL})
    process = with_intervals(run.model_copy(update={"checkpoints": (*nearer, free)}))
    best = process.levels[-1].interval
    own = best if isinstance(farthest.interval_seconds, str) else farthest.interval_seconds
    least = max(farthest.write_seconds, run.step_seconds)
    around = [best * factor for factor in _AROUND if least <= best * factor <= LONGEST_SECONDS]
    needed = process.rates[process.levels_of == len(nearer)].any()  # else the rarer the better, without end
    return own, best if needed else None, [best, *around]


def _changed(run: RunDescription, what: str, value: float) -> RunDescription:
    if what == "interval":
        farthest = run.checkpoints[-1].model_copy(update={"interval_seconds": value})
        return run.model_copy(update={"checkpoints": (*run.checkpoints[:-1], farthest)})
    if what == "spares":
        return _with(run, "spares", count=int(value))
    if what == "restart":
        return _with(run, "recovery", restart_seconds=value)
    accelerators = int(value)
    share = accelerators / run.accelerators
    changed = run.model_copy(update={"accelerators": accelerators})
    if run.spares.count is not None:
        changed = _with(changed, "spares", count=min(changed.nodes, math.ceil(run.spares.count * share)))
    if run.replicas.count is not None:
        changed = _with(
            changed,
            "replicas",
            count=max(1, round(run.replicas.count * share)),
            minimum=max(1, round(run.replicas.minimum * share)),
        )
    return changed


def best_spares(run: RunDescription) -> tuple[int, Point]:
    """The number of spare nodes with which the work costs least."""
    work_days, run = _work_days(run), settled(run)

    def point(count: int) -> Point:
        return point_of(_with(run, "spares", count=count), work_days)

    broken = with_intervals(run).breaking * run.spares.repair_hours * HOUR
    most = min(run.nodes, math.ceil(broken + 8 * math.sqrt(broken) + 4))
    low, high, step = 0, most, max(1, -(-most // _MOST_COUNTS))
    while True:
        found = {count: point(count) for count in range(low, high + 1, step)}
        best = min(found, key=lambda count: (found[count].cost_of_work, found[count].days_of_work, count))
        if step == 1:
            return best, found[best]
        low, high, step = max(0, best - step), min(most, best + step), max(1, step // _FINER)
