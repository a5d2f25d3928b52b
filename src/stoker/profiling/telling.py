"""A profile in words and figures, and as JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stoker import wording
from stoker.profiling.account import CATEGORIES, COMPUTE, EXPOSED
from stoker.profiling.analysis import mean_of
from stoker.profiling.predicted import OFF_SHARE

if TYPE_CHECKING:
    from stoker.profiling.profile import Profile

Row = tuple[object, ...]
_WIDEST_SHAPES = 44
_NOTHING = 0.001


def as_json(found: Profile) -> dict[str, Any]:
    """Everything, for machines."""
    picture, steps = found.picture, found.steps
    return {
        "recipe": found.recipe.name,
        "layout": found.recipe.layout.model_dump(mode="json"),
        "device": found.machine.device,
        "machine": found.machine.name,
        "steps": list(range(steps.first, steps.last + 1)),
        "from_step": found.start,
        "trace": str(found.trace),
        "step_seconds": picture.wall,
        "seconds": picture.mean(),
        "ranks": [
            {**asdict(one), "seconds": one.seconds, "wall_seconds": one.wall, "clock": facts["clock"]}
            for one, facts in zip(picture.ranks, picture.facts, strict=True)
        ],
        "arrives_last": {str(rank): share for rank, share in picture.last.items()},
        "reachable_flops_per_second": found.reachable,
        "operators": [asdict(row) for row in operator_rows(found)],
        "memory_peak": None if picture.peak is None else asdict(picture.peak),
        "predicted": [{**asdict(one), "ratio": one.ratio} for one in found.compared],
        "predicted_for_rank": found.compared_rank,
        "checklist": [asdict(one) for one in found.answers],
        "profiler": cost(found),
        "saw_device": picture.saw_device,
    }


def operator_rows(found: Profile) -> tuple[Any, ...]:
    """The operators that take most time."""
    rank_steps = sum(one.steps for one in found.picture.ranks)
    return found.picture.totals.rows(rank_steps, found.reachable)


def cost(found: Profile) -> dict[str, float | int | None]:
    """What profiling itself costs: steps with and without it in one run, on the rank with the longest of them."""
    worst = max(found.picture.facts, key=lambda facts: facts["profiled_seconds"])
    plain = worst["plain_seconds"]
    median = statistics.median(plain) if plain else None
    return {
        "step_seconds": worst["profiled_seconds"],
        "step_seconds_without": median,
        "steps_without": len(plain),
        "shortest_without": min(plain, default=None),
        "longest_without": max(plain, default=None),
        "ratio": worst["profiled_seconds"] / median if median else None,
    }


def heading(found: Profile) -> list[str]:
    """What was profiled, and what that cost."""
    steps, costs = found.steps, cost(found)
    which = f"step {steps.first:,}" if steps.count == 1 else f"steps {steps.first:,} to {steps.last:,}"
    begun = f", from the checkpoint of step {found.start:,}" if found.start else ""
    plain, ratio = costs["step_seconds_without"], costs["ratio"]
    if plain is None or ratio is None:
        told = "unknown: no other step had settled; profile later steps"
    else:
        told = (
            f"a step takes {wording.duration(costs['step_seconds'])} with it and {wording.duration(plain)} without "
            f"(median of {costs['steps_without']:,}, {wording.duration(costs['shortest_without'])} to "
            f"{wording.duration(costs['longest_without'])}): {ratio - 1:+.0%}"
        )
    clocks = max((facts["clock"]["uncertain"] for facts in found.picture.facts), default=0.0)
    lines = [
        f"profile   {which} of {found.recipe.name} on {found.recipe.layout}{begun}",
        f"machine   {found.machine.name}, matrix products reach {wording.count(found.reachable)} FLOP/s on a rank",
        f"profiler  {told}",
        f"clocks    of all ranks by rank 0's, to {wording.duration(clocks / 1e9)}",
        f"trace     {found.trace} (open it in https://ui.perfetto.dev)",
    ]
    if not found.picture.saw_device:
        lines.append(
            f"{'':10}the profiler saw nothing of the accelerator (Nsight Systems may hold it): host times only"
        )
    return lines


def time_table(found: Profile) -> tuple[list[str], list[Row]]:
    """Milliseconds of a step by category: a row for each rank, and their mean."""
    picture = found.picture
    shown = [name for name in CATEGORIES if any(one.nanoseconds[name] for one in picture.ranks)]
    headers = ["rank", "step ms", *(wording.words(name) for name in shown), "hidden communication"]
    rows: list[Row] = [
        (one.name, _ms(one.wall), *(_ms(one.seconds[name]) for name in shown), _ms(one.overlapped))
        for one in picture.ranks
    ]
    mean, hidden = picture.mean(), sum(one.overlapped for one in picture.ranks) / len(picture.ranks)
    rows.append(("mean", _ms(picture.wall), *(_ms(mean[name]) for name in shown), _ms(hidden)))
    rows.append(("share", "100%", *(wording.percent(mean[name] / picture.wall) for name in shown), ""))
    return headers, rows


def parts(found: Profile) -> tuple[list[str], list[Row]]:
    """What computation and waiting are made of, the mean over ranks."""
    ranks, wall, mean = found.picture.ranks, found.picture.wall, found.picture.mean()
    rows: list[Row] = []
    for name, seconds in sorted(mean_of([one.compute for one in ranks]).items(), key=lambda item: -item[1]):
        rows.append((COMPUTE, name, _ms(seconds), wording.percent(seconds / wall), "", ""))
    kinds: dict[tuple[str, str], list[float]] = {}
    for one in ranks:
        for sent in one.sent:
            sums = kinds.setdefault((sent.kind, sent.dimension), [0.0, 0.0, 0.0])
            for place, value in enumerate((sent.exposed, sent.count, sent.bytes)):
                sums[place] += value / len(ranks)
    waiting = sum(one.waiting for one in ranks) / len(ranks)
    for (kind, dimension), (seconds, count, size) in sorted(kinds.items(), key=lambda item: -item[1][0]):
        if round(count) == 0 and seconds < _NOTHING * wall:
            continue
        each = wording.size(size / count) if size else ""
        rows.append(
            (
                "waiting",
                f"{kind} along {dimension}",
                _ms(seconds),
                wording.percent(seconds / wall),
                f"{count:,.0f}",
                each,
            )
        )
    if waiting > 0.001 * mean[EXPOSED]:
        rows.append(("waiting", "before and after them", _ms(waiting), wording.percent(waiting / wall), "", ""))
    return ["", "of it", "ms", "of the step", "calls", "bytes each"], rows


def operator_table(found: Profile) -> tuple[list[str], list[Row]]:
    """The operators that take most time."""
    rows: list[Row] = []
    for row in operator_rows(found):
        shapes = " ".join("×".join(map(str, shape)) for shape in row.shapes)
        shapes = shapes if len(shapes) <= _WIDEST_SHAPES else shapes[: _WIDEST_SHAPES - 1] + "…"
        rate = "" if row.flops_per_second is None else wording.count(row.flops_per_second)
        share = "" if row.of_reachable is None else wording.percent(row.of_reachable)
        rows.append((row.name, shapes, f"{row.calls:,.0f}", _ms(row.seconds), rate, share))
    return ["operator", "shapes", "calls", "ms", "FLOP/s", "of reachable"], rows


def check_list(found: Profile) -> list[str]:
    """The check-list, most costly first: question, figures, and what to do where the answer is no."""
    lines = ["check-list, with what a step would be shorter by at most:"]
    for one in found.answers:
        costs = wording.duration(one.seconds) if one.seconds and one.answer == "no" else ""
        lines += [f"{one.answer:<8} {costs:>8}  {one.question}", f"{'':19}{one.figures}"]
        if one.answer == "no" and one.advice:
            lines.append(f"{'':19}→ {one.advice}")
    return lines


def predicted_table(found: Profile) -> tuple[list[str], list[Row]]:
    """The plan beside what was measured, on the rank that computes longest."""
    rows: list[Row] = [
        (
            one.what,
            "not predicted" if one.predicted is None else _ms(one.predicted),
            _ms(one.measured),
            "" if one.ratio is None else f"{one.ratio:.2f}",
            f"off by more than {OFF_SHARE:.0%}" if one.off else "",
        )
        for one in found.compared
    ]
    return [f"rank {found.compared_rank}", "predicted ms", "measured ms", "ratio", ""], rows


def memory_lines(found: Profile) -> list[str]:
    """How high memory went."""
    peak = found.picture.peak
    if peak is None:
        return ["memory    the profiler saw none taken"]
    taken = ", ".join(f"{name} {wording.size(size)}" for name, size in peak.taken.items())
    return [
        f"memory    highest on rank {peak.rank} in {peak.phase} of step {peak.step:,}: "
        f"{wording.size(peak.above_start)} above the start ({taken}), beside parameters "
        f"{wording.size(peak.parameters)} and optimizer {wording.size(peak.optimizer)}"
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}" if seconds < 1 else f"{seconds * 1e3:,.0f}"
