"""An answer as text: tables' rows, and a verdict in words."""

from __future__ import annotations

import math
import textwrap

from stoker.planning.reliability.answer import LEAST_GOODPUT, Answer, Simulated
from stoker.planning.reliability.changes import hourly_cost
from stoker.planning.reliability.formula import CAUSES
from stoker.plural import counted

LOSSES = ("where the time goes", "formula", "simulated")
KINDS = ("kind", "failures", "share")
WORTHS = ("change", "goodput", "gain", "saved")
SWEEP_UNITS = {
    "interval": "seconds of training between checkpoints",
    "spares": "spare nodes",
    "restart": "seconds of a restart without loading",
    "accelerators": "accelerators",
}
_WORTH_SAYING = 0.0005
_NEVER_DAYS = 1e7
_GOES_TO = {
    "checkpoint stalls": "stalls for checkpoints",
    "lost work": "work that is done again after a failure",
    "detection": "finding failures",
    "restart": "restarts",
    "node swap": "swapping nodes",
    "waiting for a node": "waiting for nodes",
    "fewer ranks": "missing groups",
    "planned": "planned interruptions",
}
"""How a sentence speaks of a cause whose name does not fit into one."""


def sweep_headers(what: str) -> tuple[str, ...]:
    """Of a sweep's table."""
    return (SWEEP_UNITS[what], "goodput", "days for the same work", "cost of the same work", "")


def summary(answer: Answer) -> str:
    """The figures of the run itself, a line each."""
    run, point, simulated = answer.run, answer.point, answer.simulated
    spares = counted(answer.process.spares, "spare nodes")
    lines = [
        f"run        {run.name}: {run.accelerators:,} accelerators in {counted(run.nodes, 'nodes')}, {spares}",
        f"work       {_work(answer)}",
        f"assumes    {_assumed(answer)}",
        f"failures   {_mtbf(answer)}; {number(point.goodput.interruptions_per_day, 3)} interruptions a day",
        f"goodput    {_percent(point.goodput.goodput)} by formula" + _simulated_goodput(answer),
        f"effective  {_percent(point.goodput.effective)} of the time is in steps that are kept",
    ]
    if answer.process.per_step:
        lines.append(
            f"groups     {point.goodput.groups * answer.process.groups:.1f} of {answer.process.groups} take part; "
            f"{_percent(point.goodput.committed)} of the steps begun are kept"
        )
    lines += [f"checkpoint {line}" for line in _interval_lines(answer)]
    lines.append(f"time       {_time(answer)}")
    lines.append(f"cost       {_cost(answer)}, {money(hourly_cost(run))} an hour")
    if simulated is not None and simulated.share < 1:
        lines.append(
            f"simulated  the first {number(simulated.share * 100, 3)}% of each run: it has too many failures "
            "for more"
        )
    return "\n".join(lines)


def _mtbf(answer: Answer) -> str:
    if math.isinf(answer.mtbf_hours):
        return "none"
    if answer.mtbf_hours < 1:
        minutes = number(answer.mtbf_hours * 60, 3)
        return f"one every {minutes} {'minute' if minutes == '1' else 'minutes'} of training"
    return f"one every {number(answer.mtbf_hours, 3)} hours of training"


def _simulated_goodput(answer: Answer) -> str:
    simulated = answer.simulated
    if simulated is None:
        return "; not simulated, because the run makes next to no headway"
    low, _, high = simulated.goodput_quantiles.values()
    return (
        f", {_percent(simulated.goodput)}{_error(simulated)} in {counted(simulated.runs, 'simulated runs')} "
        f"({_percent(low)} to {_percent(high)} in nine of ten)"
    )


def _error(simulated: Simulated) -> str:
    return "" if simulated.goodput_error is None else f" ± {simulated.goodput_error * 100:.2g}"


def _interval_lines(answer: Answer) -> list[str]:
    lines = []
    for interval in answer.intervals:
        estimates = ""
        if interval.young is not None and interval.daly is not None:
            estimates = f" (Young {number(interval.young)} s, Daly {number(interval.daly)} s)"
        if interval.needed:
            steps = counted(round(interval.taken / answer.process.step), "steps")
            said = (
                f"every {number(interval.given)} s of training ({steps}); best {number(interval.best)} s{estimates}"
            )
        else:
            said = "as rarely as you like: no failure that is described goes back to it"
        lines.append(f"{interval.where}: {said}")
    return lines


def _time(answer: Answer) -> str:
    if answer.run.wall_days is not None:
        done = answer.point.goodput.goodput * answer.run.wall_days
        return f"{number(answer.run.wall_days)} days on the wall clock do {number(done)} days of work"
    if answer.point.days > _NEVER_DAYS:
        return "never done"
    text = f"{number(answer.point.days)} days until it is done"
    if answer.simulated is not None:
        low, _, high = answer.simulated.days.values()
        text += f" ({_days(low)} to {_days(high)} in nine of ten runs)"
    return text


def _cost(answer: Answer) -> str:
    return "without end" if answer.point.days > _NEVER_DAYS else money(answer.point.cost)


def _work(answer: Answer) -> str:
    run = answer.run
    if run.work_days is None:
        return (
            f"what {number(run.wall_days or 0.0)} days on the wall clock do, at {number(run.step_seconds)} s a step"
        )
    default = "" if run.ideal_days else " (as by default)"
    days, step = number(run.work_days), number(run.step_seconds)
    return f"{days} days of training if nothing disturbed it{default}, at {step} s a step"


def _assumed(answer: Answer) -> str:
    """What the figures below rest on, given or by default."""
    run, process = answer.run, answer.process
    happen = [kind for kind, rate in enumerate(process.rates.tolist()) if rate > 0]
    parts = [f"${run.price_per_accelerator_hour:,.2f} an accelerator-hour"]
    if happen:
        parts.append(f"failures found after {_span(process.detection[happen].tolist())}")
        parts.append(f"restarts of {_span(process.restart[happen].tolist())}")
    for copies in run.checkpoints:
        parts.append(
            f"copies to {copies.where} that stall {number(copies.stall_seconds)} s and load in "
            f"{number(copies.load_seconds)} s"
        )
    if process.breaking or process.slowing:
        parts.append(f"nodes swapped in {number(run.spares.swap_seconds)} s")
        parts.append(f"repaired in {number(run.spares.repair_hours)} hours")
    return textwrap.fill(", ".join(parts), 100, subsequent_indent=" " * 11)


def _span(seconds: list[float]) -> str:
    low, high = min(seconds), max(seconds)
    return f"{number(low)} s" if low == high else f"{number(low)} to {number(high)} s"


def losses(answer: Answer) -> list[tuple[str, str, str]]:
    """Rows for `LOSSES`, the largest first."""
    formula, simulated = answer.point.goodput, answer.simulated

    def drawn(value: float | None) -> str:
        return "-" if value is None else _percent(value)

    rows = [("work kept", _percent(formula.goodput), drawn(simulated.goodput if simulated else None))]
    for cause in sorted(CAUSES, key=lambda cause: -formula.losses[cause]):
        also = simulated.losses[cause] if simulated else None
        if formula.losses[cause] >= _WORTH_SAYING or (also or 0) >= _WORTH_SAYING:
            rows.append((cause, _percent(formula.losses[cause]), drawn(also)))
    return rows


def kinds(answer: Answer) -> list[tuple[str, str, str]]:
    """Rows for `KINDS`: mean failures of a whole simulated run."""
    if answer.simulated is None:
        return []
    total = sum(answer.simulated.by_kind.values())
    ordered = sorted(answer.simulated.by_kind.items(), key=lambda item: -item[1])
    return [(name, f"{count:,.1f}", _percent(count / total)) for name, count in ordered if count > 0]


def worth_rows(answer: Answer) -> list[tuple[str, str, str, str]]:
    """Rows for `WORTHS`."""
    return [
        (worth.change, _percent(worth.goodput), f"{worth.gain * 100:+.2f} points", money(worth.saved))
        for worth in answer.worths
    ]


def sweep_rows(answer: Answer, what: str) -> list[tuple[str, str, str, str, str]]:
    """Rows for `sweep_headers`."""
    found = []
    for row in answer.sweeps[what]:
        marks = ["as described"] if row.given else []
        if row.best:
            marks.append("the optimum")
        if what == "restart" and row.value == 0:
            marks += _left_of_a_restart(answer)
        point = row.point
        cost = "without end" if point.days_of_work > _NEVER_DAYS else money(point.cost_of_work)
        days, share = _days(point.days_of_work), _percent(point.goodput.goodput)
        found.append((number(row.value), share, days, cost, ", ".join(marks)))
    return found


def _left_of_a_restart(answer: Answer) -> list[str]:
    """What a restart still takes where `recovery.restart_seconds` is nothing."""
    run, process = answer.run, answer.process
    if all(kind.restart_seconds is not None for kind in run.failures.kinds):
        return ["every kind of failure says its own restart"]
    left = [
        process.attempt(kind, level) - (run.recovery.restart_seconds if own.restart_seconds is None else 0.0)
        for kind, (own, level) in enumerate(zip(run.failures.kinds, process.levels_of.tolist(), strict=True))
        if level >= 0 and process.rates[kind] > 0
    ]
    if not left or max(left) == 0:
        return []
    parts = ["loading"]
    if run.recovery.restart_seconds_per_1000_nodes:
        parts.append("what grows with nodes")
    if any(kind.restart_seconds for kind in run.failures.kinds):
        parts.append("restarts that a kind says itself")
    return [f"{_span(left)} are left: {', '.join(parts)}"]


def verdict(answer: Answer) -> str:
    """What the figures mean, in sentences."""
    goodput = answer.point.goodput
    if goodput.goodput < LEAST_GOODPUT:
        return (
            f"The run makes next to no headway: it fails every {number(answer.mtbf_hours * 60, 3)} minutes, and "
            "getting back to work takes about as long. Only fewer failures, a faster restart or groups that fail "
            "alone (`replicas.mode=per_step`) help."
        )
    largest = max(goodput.losses, key=lambda cause: goodput.losses[cause])
    sentences = [
        f"Of 100 paid hours {goodput.goodput * 100:.1f} become work. The largest part of the rest goes to "
        f"{_GOES_TO.get(largest, largest)} ({_percent(goodput.losses[largest])})."
    ]
    sentences += _of_intervals(answer)
    sentences += _of_spares(answer)
    faster = next((worth for worth in answer.worths if worth.change.startswith("restart faster")), None)
    if faster is not None and faster.gain >= 1e-5:
        sentences.append(
            f"A restart faster by one minute is worth {faster.gain * 100:.2f} points, or {money(faster.saved)}."
        )
    return " ".join(sentences)


def _of_intervals(answer: Answer) -> list[str]:
    sentences = []
    gain = answer.intervals[0].goodput - answer.point.goodput.goodput if answer.intervals else 0.0
    if gain >= _WORTH_SAYING:
        best = ", ".join(
            f"every {number(interval.best)} s to {interval.where}"
            for interval in answer.intervals
            if interval.needed
        )
        sentences.append(f"Take checkpoints {best} instead: {gain * 100:.2f} points more.")
    elif answer.intervals:
        sentences.append("The checkpoint interval is as good as the best.")
    return sentences


def _of_spares(answer: Answer) -> list[str]:
    now, best = answer.process.spares, answer.spares
    saved = answer.point.cost_of_work - answer.at_best_spares.cost_of_work
    if not answer.process.breaking:
        return []
    if now == best:
        right = f"{counted(now, 'spare nodes')} {'is' if now == 1 else 'are'} about right"
        return [f"{right}: with more or fewer the work costs more."]
    better = answer.at_best_spares.goodput.goodput - answer.point.goodput.goodput
    return [
        f"With {counted(best, 'spare nodes')} instead of {now} the work costs least: {money(saved)} less, goodput "
        f"{better * 100:+.2f} points."
    ]


def _percent(share: float) -> str:
    return f"{share * 100:.1f}%" if share >= 0.0995 or share == 0 else f"{share * 100:.2f}%"


def _days(days: float) -> str:
    return "never" if days > _NEVER_DAYS else number(days)


def number(value: float, digits: int = 4) -> str:
    """`0.0123`, `67.57`, `26,202`: so many digits that count, and never a power of ten."""
    if not math.isfinite(value):
        return "without end"
    if value == 0:
        return "0"
    text = _digits(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _digits(value: float, digits: int) -> str:
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def money(dollars: float) -> str:
    """`$1,234`, `$12.3 million`, `$20.6 billion`."""
    if not math.isfinite(dollars):
        return "without end"
    sign, amount = ("-" if dollars < 0 else ""), abs(dollars)
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if amount >= unit * 0.9995:
            return f"{sign}${_digits(amount / unit, 4)} {name}"
    return f"{sign}${amount:,.0f}"
