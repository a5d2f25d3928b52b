"""The plan beside what was measured: a wrong prediction is a defect that can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker import wording
from stoker.report.curves import seconds_of_training
from stoker.report.run_facts import RunFacts

_WARM_UP_STEPS = 3
"""The first steps of an attempt allocate and compile; they are left out of medians when enough follow."""
_GIB = 2**30


@dataclass(frozen=True)
class Comparison:
    """One predicted figure and what became of it."""

    what: str
    planned: str
    measured: str
    ratio: float | None
    """Measured over planned."""

    @property
    def verdict(self) -> str:
        """How close: `close` within 10%, `near` within 25%, `far` beyond; empty when not both are known."""
        if self.ratio is None or self.ratio <= 0:
            return ""
        off = max(self.ratio, 1 / self.ratio)
        return "close" if off <= 1.1 else "near" if off <= 1.25 else "far"


def median_of_steps(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    """Median of finite values [steps] without the first steps; None without any."""
    settled = values[_WARM_UP_STEPS:] if values.size > 3 * _WARM_UP_STEPS else values
    finite = settled[np.isfinite(settled)]
    return float(np.median(finite)) if finite.size else None


def tokens_per_second(facts: RunFacts) -> float | None:
    """Median over the steps, without evaluation and saving, all ranks together."""
    seconds = seconds_of_training(facts)
    return median_of_steps(facts.numbers("tokens") / np.where(seconds > 0, seconds, np.nan))


def tokens_per_second_per_rank(facts: RunFacts) -> float | None:
    """The same by the number of ranks that did each step."""
    seconds, ranks = seconds_of_training(facts), np.nan_to_num(facts.numbers("ranks"), nan=1.0)
    return median_of_steps(facts.numbers("tokens") / np.where(seconds > 0, seconds, np.nan) / np.maximum(ranks, 1))


def peak_memory_bytes(facts: RunFacts) -> float | None:
    """Largest peak of any rank."""
    peaks = []
    for rank in facts.record.ranks:
        table = facts.record.steps(["memory_peak_bytes"], rank=rank) if rank else facts.steps
        if "memory_peak_bytes" in table.columns and (peak := table["memory_peak_bytes"].max()) is not None:
            peaks.append(float(str(peak)))
    return max(peaks, default=None)


def compare(facts: RunFacts) -> list[Comparison]:
    """Planned against measured: memory, step time by part, speed."""
    if not facts.plan:
        return []
    return [*_memory(facts), *_time(facts), *_speed(facts), *_whole_run(facts)]


def _whole_run(facts: RunFacts) -> list[Comparison]:
    """Time of all steps, once all of them are done."""
    planned, seconds = facts.plan.get("total_hours"), seconds_of_training(facts)
    if not isinstance(planned, int | float) or not np.isfinite(seconds).any():
        return []
    done = facts.steps["step"][-1] == facts.setting("training", "steps")
    measured = float(np.nansum(seconds)) if done else None
    return [_compared("time of all steps", planned * 3600, measured, wording.duration)]


def _memory(facts: RunFacts) -> list[Comparison]:
    planned = _figures(facts.plan.get("peak_memory_gib"))
    total = planned.pop("total", None)
    measured = peak_memory_bytes(facts)
    rows = [_compared("peak memory per rank", _times(total, _GIB), measured, wording.size)]
    rows += [
        _compared(f"of it {wording.words(name)}", _times(part, _GIB), None, wording.size)
        for name, part in planned.items()
    ]
    return rows if total is not None else []


def _time(facts: RunFacts) -> list[Comparison]:
    planned = _figures(facts.plan.get("step_seconds"))
    phases = {
        name: median_of_steps(facts.numbers(f"seconds.{name}"))
        for name in ("forward", "backward", "communication", "optimizer")
    }
    compute = (phases["forward"] or 0.0) + (phases["backward"] or 0.0)
    rows = []
    if "total" in planned:
        total = median_of_steps(seconds_of_training(facts))
        rows.append(_compared("step time", planned["total"], total, wording.duration))
    if "compute" in planned:
        # What ranks with parts of one model tell each other, they do within passes.
        passes = sum(planned.get(name, 0.0) for name in ("compute", "recompute", "tp", "cp", "ep", "offload"))
        rows.append(_compared("of it forward and backward", passes, compute or None, wording.duration))
    communication = [planned[name] for name in ("dp", "pp_bubble") if name in planned]
    if any(communication):
        measured = phases["communication"]
        rows.append(_compared("of it communication", sum(communication), measured, wording.duration))
    if "optimizer" in planned:
        rows.append(_compared("of it optimizer", planned["optimizer"], phases["optimizer"], wording.duration))
    return rows


def _speed(facts: RunFacts) -> list[Comparison]:
    own = tokens_per_second_per_rank(facts)
    planned = facts.plan.get("tokens_per_second_per_gpu")
    if not isinstance(planned, int | float):
        return []
    rows = [_compared("tokens per second per device", float(planned), own, wording.count)]
    mfu = facts.plan.get("mfu")
    if isinstance(mfu, int | float) and mfu > 0 and own is not None and planned > 0:
        # The same arithmetic and the same peak: the measured share follows from the measured speed.
        rows.append(_compared("model FLOPs utilisation", float(mfu), mfu * own / planned, wording.percent))
    return rows


def _compared(what: str, planned: float | None, measured: float | None, spell: Any) -> Comparison:
    ratio = measured / planned if planned and measured is not None else None
    return Comparison(what, spell(planned), spell(measured), ratio)


def _figures(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {str(key): float(part) for key, part in value.items() if isinstance(part, int | float)}


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
