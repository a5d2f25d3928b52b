"""`stoker plan evaluate`: predictions held against measurements, source by source."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stoker.durable_files import write_text
from stoker.planning.cluster.measurements import Measurement
from stoker.planning.cluster.parameters import Parameters
from stoker.planning.cluster.prediction import Prediction, predict
from stoker.planning.cluster.ranking import Ranking, ranking
from stoker.planning.cluster.rows import CannotBeModelled, Case, case_of
from stoker.progress import Progress

_FEWEST_LAYOUTS = 3
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Judged:
    """A measurement and its prediction, or why there is none."""

    measurement: Measurement
    case: Case | None
    prediction: Prediction | None
    reason: str = ""

    @property
    def time_error(self) -> float | None:
        """Predicted over measured, less 1."""
        measured = self.measured_seconds
        return None if self.prediction is None or measured is None else self.prediction.seconds.total / measured - 1

    @property
    def measured_seconds(self) -> float | None:
        """Of a step; from tokens a second where the row has no batch and one was assumed."""
        stated = self.measurement.step_seconds
        if stated is not None or self.case is None:
            return stated
        rate = self.measurement.tokens_per_second_per_accelerator
        workload = self.case.workload
        return workload.tokens / (rate * workload.parallelism.world_size) if rate else None

    @property
    def measured_seconds_per_sequence(self) -> float:
        """What layouts are ranked by, for their batches may differ."""
        return (self.measured_seconds or 0.0) / self._sequences

    @property
    def predicted_seconds_per_sequence(self) -> float:
        """The same as predicted."""
        return (self.prediction.seconds.total if self.prediction else 0.0) / self._sequences

    @property
    def _sequences(self) -> float:
        return float(self.case.workload.global_batch_size) if self.case else 1.0

    @property
    def predicted_gib(self) -> float | None:
        """As the source measured: by the allocator, or as the device shows it."""
        if self.prediction is None or self.case is None:
            return None
        memory = self.prediction.memory
        seen = {"allocated": memory.allocated, "reserved": memory.reserved, "device": memory.total}
        return seen[self.case.memory_of] / _GIB

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured, less 1."""
        measured = self.measurement.memory_gib
        return None if self.prediction is None or measured is None else (self.predicted_gib or 0.0) / measured - 1


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute errors of one source, as shares of what was measured."""

    rows: int
    mean: float
    median: float
    bias: float
    """Mean with sign: above 0 the prediction is too long or too large."""


def errors_of(values: Sequence[float]) -> Errors | None:
    """None of nothing."""
    if not values:
        return None
    absolute = [abs(value) for value in values]
    return Errors(len(values), statistics.fmean(absolute), statistics.median(absolute), statistics.fmean(values))


@dataclass(frozen=True, slots=True)
class SourceResult:
    """How well one source was predicted."""

    source: str
    rows: int
    unmodelled: int
    time: Errors | None
    memory: Errors | None
    spearman: float | None
    regret: float | None
    left_out_time: Errors | None = None
    """With parameters fitted without this source."""
    left_out_memory: Errors | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All sources together."""

    sources: tuple[SourceResult, ...]
    rankings: tuple[Ranking, ...]
    reasons: dict[str, int]
    judged: tuple[Judged, ...]

    @property
    def unmeasured(self) -> int:
        """Rows that are predicted and hold neither a step's time nor memory (conventions of MFU differ)."""
        return sum(
            one.prediction is not None and one.time_error is None and one.memory_error is None
            for one in self.judged
        )

    def macro(self, pick: Callable[[SourceResult], float | None]) -> float | None:
        """Mean over the sources that have the figure."""
        found = [value for value in map(pick, self.sources) if value is not None]
        return statistics.fmean(found) if found else None

    def as_json(self) -> dict[str, Any]:
        """For machines; errors as shares."""
        return {
            "rows": len(self.judged),
            "modelled": sum(one.prediction is not None for one in self.judged),
            "macro": {name: self.macro(pick) for name, pick in _MACRO.items()},
            "sources": [asdict(one) for one in self.sources],
            "rankings": [asdict(one) for one in self.rankings],
            "not_modelled": self.reasons,
            "unmeasured": self.unmeasured,
        }

    def as_text(self) -> str:
        """For people; errors in percent."""
        from stoker.planning.cluster.evaluation_text import evaluation_text

        return evaluation_text(self)

    def write(self, path: Path) -> None:
        """One line a row: what was measured and predicted by part, or the reason why not."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(map(_line, self.judged))
        write_text(path, text.getvalue())


_MACRO: dict[str, Callable[[SourceResult], float | None]] = {
    "time_mean": lambda one: one.time.mean if one.time else None,
    "time_median": lambda one: one.time.median if one.time else None,
    "memory_mean": lambda one: one.memory.mean if one.memory else None,
    "memory_median": lambda one: one.memory.median if one.memory else None,
    "spearman": lambda one: one.spearman,
    "regret": lambda one: one.regret,
    "left_out_time_mean": lambda one: one.left_out_time.mean if one.left_out_time else None,
    "left_out_memory_mean": lambda one: one.left_out_memory.mean if one.left_out_memory else None,
}


def judge(measurements: Iterable[Measurement], parameters: Parameters | None = None) -> list[Judged]:
    """Predict each measurement that can be modelled."""
    found = []
    for measurement in measurements:
        try:
            found.append(_judge(measurement, parameters))
        except CannotBeModelled as problem:
            found.append(Judged(measurement, None, None, str(problem)))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # One row that nobody foresaw must not cost the others their judgement.
            reason = f"cannot be worked out ({type(error).__name__}: {str(error).splitlines()[0][:80]})"
            found.append(Judged(measurement, None, None, reason))
    return found


def _judge(measurement: Measurement, parameters: Parameters | None) -> Judged:
    case = case_of(measurement.fields)
    if measurement.problem:
        raise CannotBeModelled(measurement.problem)
    prediction = predict(case.workload, case.cluster, case.software, parameters)
    if not 0 < prediction.seconds.total < math.inf:
        raise CannotBeModelled(f"{prediction.seconds.total} seconds come out")
    return Judged(measurement, case, prediction)


def evaluate(measurements: Sequence[Measurement], leave_one_out: bool, progress: Progress) -> Evaluation:
    """Hold predictions against measurements, with `leave_one_out` also those of fits without each source."""
    judged = judge(measurements)
    left_out: dict[str, tuple[Errors | None, Errors | None]] = {}
    if leave_one_out:
        from stoker.planning.cluster.fitting import fitted_without, samples_of

        samples = samples_of(judged)
        names = sorted({one.measurement.source for one in judged if one.prediction is not None})
        with progress.task("fit without each source", len(names), "sources") as task:
            for name in names:
                task.describe(name)
                values = fitted_without(samples, name)
                again = judge([one.measurement for one in judged if one.measurement.source == name], values)
                left_out[name] = _time_and_memory(again)
                task.advance()
    rankings = tuple(_rankings(judged))
    by_source: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        by_source[one.measurement.source].append(one)
    sources = tuple(
        _result(name, rows, [one for one in rankings if one.source == name], left_out.get(name, (None, None)))
        for name, rows in by_source.items()
    )
    reasons = Counter(one.reason for one in judged if one.reason)
    return Evaluation(sources, rankings, dict(reasons.most_common()), tuple(judged))


def _time_and_memory(rows: Sequence[Judged]) -> tuple[Errors | None, Errors | None]:
    times = [one.time_error for one in rows]
    memories = [one.memory_error for one in rows]
    return (
        errors_of([value for value in times if value is not None]),
        errors_of([value for value in memories if value is not None]),
    )


def _result(
    name: str, rows: list[Judged], rankings: list[Ranking], left_out: tuple[Errors | None, Errors | None]
) -> SourceResult:
    time, memory = _time_and_memory(rows)
    return SourceResult(
        source=name,
        rows=len(rows),
        unmodelled=sum(one.prediction is None for one in rows),
        time=time,
        memory=memory,
        spearman=statistics.fmean(one.spearman for one in rankings) if rankings else None,
        regret=statistics.fmean(one.regret for one in rankings) if rankings else None,
        left_out_time=left_out[0],
        left_out_memory=left_out[1],
    )


_SAME = ("source", "model_name", "layers", "hidden", "heads", "seq_len", "gpu", "gpus_total", "precision")
_RELEASE = re.compile(r"container [\d.]+|precision=[\w-]+|^\d\d-\d\d|\bv\d\d\.\d\d")
"""What notes say of the software's release or the day: layouts of different ones are not compared."""


def _rankings(judged: Sequence[Judged]) -> Iterable[Ranking]:
    """Where a source measured at least three layouts of one model on as many accelerators, in one release."""
    groups: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for one in judged:
        if one.time_error is not None:
            fields = one.measurement.fields
            release = " ".join(_RELEASE.findall(fields["notes"]))
            groups[(*(fields[name] for name in _SAME), release)].append(one)
    for key, rows in groups.items():
        by_layout: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
        for one in rows:
            by_layout[_layout(one)].append(one)
        if len(by_layout) < _FEWEST_LAYOUTS:
            continue
        # A layout that was measured several times, in several releases say, counts once, with its mean.
        each = list(by_layout.values())
        measured = [statistics.fmean(one.measured_seconds_per_sequence for one in same) for same in each]
        predicted = [statistics.fmean(one.predicted_seconds_per_sequence for one in same) for same in each]
        yield ranking(key[0], " ".join(filter(None, key[1:])), measured, predicted)


_OF_LAYOUT = (
    *("tp", "sp", "pp", "vpp", "cp", "ep", "dp_kind", "dp", "micro_batch", "recompute"),
    "global_batch_seqs",
)


def _layout(one: Judged) -> tuple[str, ...]:
    return tuple(one.measurement.fields[name] for name in _OF_LAYOUT)


_PARTS = (
    "matmul",
    "attention",
    "pointwise",
    "launch",
    "tp",
    "cp",
    "ep",
    "dp",
    "pp_bubble",
    "pp_transfer",
    "optimizer",
    "recompute",
    "offload",
    "data",
    "straggler",
)
_COLUMNS = (
    "id",
    "source",
    "measured_step_s",
    "predicted_step_s",
    "time_error",
    "measured_mem_gib",
    "predicted_mem_gib",
    "memory_error",
    *(f"{name}_s" for name in _PARTS),
    "assumptions",
    "not_modelled",
)


def _line(one: Judged) -> list[object]:
    prediction = one.prediction
    assumptions = "; ".join(one.case.assumptions) if one.case else ""
    parts = [f"{getattr(prediction.seconds, name):.6g}" if prediction else "" for name in _PARTS]
    return [
        one.measurement.fields["id"],
        one.measurement.source,
        _text(one.measured_seconds),
        _text(prediction.seconds.total if prediction else None),
        _text(one.time_error),
        _text(one.measurement.memory_gib),
        _text(one.predicted_gib),
        _text(one.memory_error),
        *parts,
        assumptions,
        one.reason,
    ]


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
