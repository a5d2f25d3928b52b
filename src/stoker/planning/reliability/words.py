"""An answer as text: tables' rows, and a verdict in words."""

from __future__ import annotations

import math

from stoker.planning.reliability.answer import LEAST_GOODPUT, Answer, Simulated
from stoker.planning.reliability.changes import Row, hourly_cost
from stoker.planning.reliability.formula import CAUSES
from stoker.plural import counted

LOSSES = ("where the time goes", "formula", "simulated")
KINDS = ("kind", "failures", "share")
WORTHS = ("change", "goodput", "gain", "saved")
SWEEP_UNITS = {
    "interval": "seconds of training between checkpoints",
    "spares": "spare nodes",
    "restart": "seconds of a restart",
    "accelerators": "accelerators",
}
_WORTH_SAYING = 0.0005


def sweep_headers(what: str) -> tuple[str, ...]:
    """Of a sweep's table."""
    return (SWEEP_UNITS[what], "goodput", "days", "cost of the work", "")


def summary(answer: Answer) -> str:
    """The figures of the run itself, a line each."""
    run, point, simulated = answer.run, answer.point, answer.simulated
    spares = counted(answer.process.spares, "spare nodes")
    lines = [
        f"run        {run.name}: {run.accelerators:,} accelerators in {counted(run.nodes, 'nodes')}, {spares}",
        f"failures   {_mtbf(answer)}; {point.goodput.interruptions_per_day:.3g} interruptions a day",
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
            f"simulated  the first {simulated.share * 100:.3g}% of each run: it has too many failures for more"
        )
    return "\n".join(lines)


def _mtbf(answer: Answer) -> str:
    if math.isinf(answer.mtbf_hours):
        return "none"
    if answer.mtbf_hours < 1:
        return f"one every {answer.mtbf_hours * 60:.3g} minutes of training"
    return f"one every {answer.mtbf_hours:.3g} hours of training"


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
            estimates = f" (Young {interval.young:,.0f} s, Daly {interval.daly:,.0f} s)"
        if interval.needed:
            said = f"every {interval.given:,.0f} s of training; best {interval.best:,.0f} s{estimates}"
        else:
            said = "as rarely as you like: no failure that is described goes back to it"
        lines.append(f"{interval.where}: {said}")
    return lines


def _time(answer: Answer) -> str:
    if answer.run.wall_days is not None:
        done = answer.point.goodput.goodput * answer.run.wall_days
        return f"{answer.run.wall_days:.4g} days on the wall clock do {done:.4g} days of work"
    if math.isinf(answer.point.days):
        return "never done"
    text = f"{answer.point.days:,.4g} days until it is done"
    if answer.simulated is not None:
        low, _, high = answer.simulated.days.values()
        text += f" ({low:,.4g} to {high:,.4g} in nine of ten runs)"
    return text


def _cost(answer: Answer) -> str:
    return "without end" if math.isinf(answer.point.cost) else money(answer.point.cost)


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


def sweep_rows(rows: list[Row], what: str) -> list[tuple[str, str, str, str, str]]:
    """Rows for `sweep_headers`."""
    best = min(rows, key=lambda row: row.point.cost_of_work, default=None)
    found = []
    for row in rows:
        marks = ["as described"] if row.given else []
        if row is best and what != "accelerators":
            marks.append("cheapest of these")
        days = "never" if math.isinf(row.point.days) else f"{row.point.days:,.4g}"
        found.append(
            (
                f"{row.value:,.0f}",
                _percent(row.point.goodput.goodput),
                days,
                money(row.point.cost_of_work),
                ", ".join(marks),
            )
        )
    return found


def verdict(answer: Answer) -> str:
    """What the figures mean, in sentences."""
    goodput = answer.point.goodput
    if goodput.goodput < LEAST_GOODPUT:
        return (
            f"The run makes next to no headway: it fails every {answer.mtbf_hours * 60:.3g} minutes, and getting "
            "back to work takes about as long. Only fewer failures, a faster restart or groups that fail alone "
            "(`replicas.mode=per_step`) help."
        )
    largest = max(goodput.losses, key=lambda cause: goodput.losses[cause])
    sentences = [
        f"Of 100 paid hours {goodput.goodput * 100:.1f} become work. Most is lost to {largest} "
        f"({_percent(goodput.losses[largest])})."
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
            f"every {interval.best:,.0f} s to {interval.where}" for interval in answer.intervals if interval.needed
        )
        sentences.append(f"Take checkpoints {best} instead: {gain * 100:.2f} points more.")
    elif answer.intervals:
        sentences.append("The checkpoint interval is as good as the best.")
    return sentences


def _of_spares(answer: Answer) -> list[str]:
    now, best = answer.process.spares, answer.spares
    saved = answer.point.cost_of_work - answer.at_best_spares.cost_of_work
    if now == best or not saved > 0.001 * answer.point.cost_of_work:
        return [f"{counted(now, 'spare nodes')} are about right."] if answer.process.breaking else []
    better = answer.at_best_spares.goodput.goodput - answer.point.goodput.goodput
    return [
        f"With {counted(best, 'spare nodes')} instead of {now} the work costs least: {money(saved)} less, goodput "
        f"{better * 100:+.2f} points."
    ]


def _percent(share: float) -> str:
    return f"{share * 100:.1f}%" if share >= 0.0995 or share == 0 else f"{share * 100:.2f}%"


def money(dollars: float) -> str:
    """`$1,234`, `$12.3 million`."""
    if math.isinf(dollars) or math.isnan(dollars):
        return "without end"
    sign, amount = ("-" if dollars < 0 else ""), abs(dollars)
    if amount >= 999_500:
        return f"{sign}${amount / 1e6:,.4g} million"
    return f"{sign}${amount:,.0f}"
